"""MLflow: one run per training run, continued by resume and by evaluation.

The store is ``MLFLOW_TRACKING_URI``, or a local SQLite file beside params.yaml.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from subprocess import DEVNULL, CalledProcessError, check_output
from time import time
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from filelock import FileLock
from matplotlib.figure import Figure
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from pipelines.checkpoint import Card
from pipelines.errors import UserError
from pipelines.schema import Experiment

DEFAULT_STORE = Path("mlflow.db")  # a local SQLite file
BATCH = 500  # metrics a call; the server's limit is 1000


def git_revision() -> str:
    """HEAD, with "+changes" if tracked files differ from it; "unknown" outside git."""
    try:
        head = check_output(["git", "rev-parse", "HEAD"], text=True, stderr=DEVNULL).strip()
        changes = check_output(
            ["git", "status", "--porcelain", "--untracked-files=no"], text=True, stderr=DEVNULL
        )
    except (CalledProcessError, FileNotFoundError):
        return "unknown"
    return head + ("+changes" if changes.strip() else "")


@contextmanager
def one_at_a_time(uri: str) -> Iterator[None]:
    """Let one process at a time open a local store: two that create it at once break it."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    with FileLock(uri.removeprefix("sqlite:///") + ".lock"):
        yield


class Tracking:
    """A client bound to one MLflow experiment and, once started, to one run of it."""

    def __init__(self, experiment_name: str) -> None:
        """Raises UserError if the store cannot be opened."""
        local = f"sqlite:///{DEFAULT_STORE.resolve()}"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or local
        artifacts = (Path("mlartifacts") / experiment_name).resolve().as_uri()
        try:
            with one_at_a_time(uri):
                self.client = MlflowClient(uri)
                found = self.client.get_experiment_by_name(experiment_name)
                self.experiment_id = (
                    found.experiment_id
                    if found
                    else self.client.create_experiment(
                        experiment_name, artifact_location=artifacts if uri == local else None
                    )
                )
        except MlflowException as error:
            raise UserError(f"MLflow store {uri}: {str(error).splitlines()[0]}") from None
        self.run_id = ""

    def start(self, card: Card, experiment: Experiment) -> None:
        """Continue the card's MLflow run, or one that was cut short, else begin a new one."""
        self.run_id = self.find_run(card)
        if self.run_id:
            return
        run = self.client.create_run(
            self.experiment_id,
            run_name=card.run_name,
            tags={
                "mlflow.source.git.commit": git_revision(),
                "arm": "baseline" if card.run["kappa_bits"] is None else "free transformer",
            },
        )
        self.run_id = run.info.run_id
        settings: dict[str, Any] = {
            **{f"run.{k}": v for k, v in card.run.items()},
            **{f"architecture.{k}": v for k, v in card.architecture.items()},
            **{
                f"optim.{k}": v
                for k, v in asdict(experiment.models[card.run["model"]].optim).items()
            },
            "precision": experiment.compute.precision.value,
            "vocab_size": card.vocab_size,
            "steps": experiment.steps(experiment.runs[card.run_name]),
            "git_revision": git_revision(),
            "data_hash": card.data_hash,
            "config_hash": card.spec_hash,
        }
        params = [Param(key, str(value)) for key, value in settings.items()]
        self.client.log_batch(self.run_id, params=params)

    def find_run(self, card: Card) -> str:
        """Id of the run a card names; if it names none, of an unfinished one like it; or ""."""
        if card.mlflow_run_id:
            try:
                known = self.client.get_run(card.mlflow_run_id).info
            except MlflowException:
                return ""
            return known.run_id if known.lifecycle_stage == "active" else ""
        same = f"params.config_hash = '{card.spec_hash}' and attributes.status != 'FINISHED'"
        found = self.client.search_runs([self.experiment_id], same, max_results=1)
        return found[0].info.run_id if found else ""

    def last_step(self, metric: str) -> int:
        """The last step of a metric of this run, −1 if it has none."""
        history = self.client.get_metric_history(self.run_id, metric)
        return max((point.step for point in history), default=-1)

    def log_rows(self, rows: list[dict[str, float]]) -> None:
        """Training rows, each metric once against steps and once against tokens."""
        now = int(time() * 1000)
        metrics = [
            Metric(f"{axis}/{key}", value, now, int(row[x]))
            for row in rows
            for axis, x in (("train", "step"), ("train_by_tokens", "tokens"))
            for key, value in row.items()
            if key not in ("step", "tokens")
        ]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(self.run_id, metrics=metrics[start : start + BATCH])

    def log_figures(self, prefix: str, figures: dict[str, float], step: int) -> None:
        now = int(time() * 1000)
        metrics = [Metric(f"{prefix}/{key}", value, now, step) for key, value in figures.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def log_artifact(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def log_plot(self, figure: Figure, name: str) -> None:
        self.client.log_figure(self.run_id, figure, name)

    def tag(self, key: str, value: str) -> None:
        self.client.log_batch(self.run_id, tags=[RunTag(key, value)])

    def finish(self, status: str = "FINISHED") -> None:
        """End the run; one that training has finished keeps its end, whatever is added later."""
        if self.client.get_run(self.run_id).info.status != "FINISHED":
            self.client.set_terminated(self.run_id, status)
