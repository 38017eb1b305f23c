"""MLflow: one run per training run, continued by resume and by evaluation.

The store is ``MLFLOW_TRACKING_URI``, or a local SQLite file beside params.yaml. Everything goes
into a record on disk first (record.py) and from there to the store in a thread of its own: a store
that is away, slow or dying stops no training, and gets the rest when it is back.

    python -m pipelines.tracking      send what is still waiting
"""

import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# a server that hangs holds up the sending thread, and the end of a stage, by this long at most
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from requests import RequestException
from tqdm import tqdm

from pipelines import errors
from pipelines.checkpoint import Card
from pipelines.errors import UserError
from pipelines.origin import git_revision
from pipelines.record import Record, records
from pipelines.schema import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_STORE = Path("mlflow.db")  # a local SQLite file
# prints the traceback of what it then raises: of a database that is full or locked
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
BATCH = 500  # metrics a call; the server's limit is 1000
KEY = "record"  # tag by which a run is found whose creation was answered by no one
AWAY = (MlflowException, RequestException, OSError)


def store_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{DEFAULT_STORE.resolve()}"


def now() -> int:
    return int(time() * 1000)


@contextmanager
def one_at_a_time(uri: str) -> Iterator[None]:
    """Let one process at a time open a local store: two that create it at once break it."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    with FileLock(uri.removeprefix("sqlite:///") + ".lock"):
        yield


def create(path: Path) -> None:
    """Make a new local store: under another name, as half a one can neither be opened nor mended,
    and without waiting for the disk at each of MLflow's many steps.
    """
    from sqlalchemy import Engine, event

    def hasten(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    event.listen(Engine, "connect", hasten)
    try:
        MlflowClient(f"sqlite:///{partial}")
    finally:
        event.remove(Engine, "connect", hasten)
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    partial.rename(path)


class Store:
    """An MLflow store, and how to bring it up to what a record says."""

    def __init__(self, uri: str) -> None:
        """Raises UserError if the store is of no known kind, or a local one cannot be opened."""
        self.uri = uri
        self.seen: set[str] = set()  # ids of runs known to be there
        try:
            with one_at_a_time(uri):
                local = Path(uri.removeprefix("sqlite:///").partition("?")[0])
                if uri.startswith("sqlite:///") and not local.exists():
                    create(local)
                self.client = MlflowClient(uri)
        except MlflowException as error:
            raise UserError(f"MLflow store {uri}: {str(error).splitlines()[0]}") from None

    def send(self, record: Record) -> None:
        """Send what the store lacks, in order; raises one of AWAY, with what was sent noted, or
        UserError where that cannot be noted.
        """
        self.find_run(record)
        wanted, sent, run_id = record.saved, record.sent, record.run_id
        if sent.get("params") != wanted["params"]:
            params = [Param(key, value) for key, value in record.params.items()]
            self.client.log_batch(run_id, params=params)
            record.note(params=wanted["params"])
        if sent.get("tags") != wanted["tags"]:
            tags = [RunTag(key, value) for key, value in wanted["tags"].items()]
            self.client.log_batch(run_id, tags=tags)
            record.note(tags=wanted["tags"])
        nested = sent.get("parent", "") == wanted["parent"]
        if not nested and (parent := self.id_of(record, wanted["parent"])):
            self.client.set_tag(run_id, MLFLOW_PARENT_RUN_ID, parent)
            record.note(parent=wanted["parent"])
        for start in range(sent.get("metrics", 0), wanted["metrics"], BATCH):
            # a store takes the same point (key, value, time, step) twice as once
            end = min(start + BATCH, wanted["metrics"])
            self.client.log_batch(run_id, [Metric(*point) for point in record.metrics[start:end]])
            record.note(metrics=end)
        for i in range(sent.get("artifacts", 0), wanted["artifacts"]):
            self.client.log_artifact(run_id, str(record.folder / record.artifacts[i]))
            record.note(artifacts=i + 1)
        if sent.get("status") != wanted["status"]:
            if wanted["status"] == "RUNNING":
                self.client.update_run(run_id, wanted["status"])
            else:
                self.client.set_terminated(run_id, wanted["status"], record.ended)
            record.note(status=wanted["status"])

    def find_run(self, record: Record) -> None:
        """Fill in ``run_id``: the run as known, unless it is gone; as found by the record's key; or
        a new one, which then gets everything.
        """
        if record.run_id in self.seen:
            return
        if record.run_id and self.is_active(record.run_id):
            self.seen.add(record.run_id)
            if not record.sent:  # known from a checkpoint: training has described it
                settled = {"params": len(record.params), "tags": record.tags}
                record.note(**settled, status=record.status)
            return
        record.sent = {}
        record.run_id = self.id_of(record, record.key) or self.client.create_run(
            self.experiment_id(record.experiment),
            start_time=record.started,
            tags=record.tags,
            run_name=record.run_name,
        ).info.run_id  # fmt: skip
        record.note(metrics=0)
        self.seen.add(record.run_id)

    def id_of(self, record: Record, key: str) -> str:
        """MLflow's id of the run with this key in the record's experiment; "" if it has none."""
        experiment_id = self.experiment_id(record.experiment)
        found = self.client.search_runs([experiment_id], f"tags.{KEY} = '{key}'", max_results=1)
        return found[0].info.run_id if found else ""

    def is_active(self, run_id: str) -> bool:
        """Whether the store has this run, and nobody has deleted it."""
        try:
            return self.client.get_run(run_id).info.lifecycle_stage == "active"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False

    def experiment_id(self, name: str) -> str:
        with one_at_a_time(self.uri):
            if found := self.client.get_experiment_by_name(name):
                return found.experiment_id
            local = self.uri.startswith("sqlite:///")
            artifacts = (Path("mlartifacts") / name).resolve().as_uri()
            return self.client.create_experiment(
                name, artifact_location=artifacts if local else None
            )


def send_waiting(store: Store) -> list[Record]:
    """Send the records of ended stages that wait for this store; raises one of AWAY."""
    done = []
    for record in records():
        if record.uri != store.uri or not record.pending():
            continue
        try:
            with FileLock(record.folder / "lock", timeout=0):
                store.send(record)
                done.append(record)
        except Timeout:  # its own stage is at it
            continue
    return done


class Tracking:
    """The record of a run, once started, and the thread that sends it."""

    def __init__(self, experiment_name: str) -> None:
        """Raises UserError if the store is of no known kind, or a local one cannot be opened."""
        self.experiment_name = experiment_name
        self.store = Store(store_uri())
        self.record: Record
        self.changed, self.ending = threading.Event(), threading.Event()

    @property
    def run_id(self) -> str:
        """MLflow's id of the run; "" as long as the store has not answered."""
        return self.record.run_id

    def start(self, card: Card, experiment: Experiment, go_on: bool) -> None:
        """Continue the record of this very run if it was cut short or is to ``go_on`` (resumed
        from a checkpoint, evaluated); else begin a new one. Sending starts.
        """
        self.open(find_record(self.store.uri, card, experiment, go_on))

    def open(self, record: Record) -> None:
        """Continue this record. Sending starts."""
        self.record = record
        if self.record.status != "FINISHED":
            self.record.status = "RUNNING"
        self.record.save()
        self.lock = FileLock(self.record.folder / "lock")
        self.lock.acquire()
        self.thread = threading.Thread(target=self.keep_sending, daemon=True)
        self.thread.start()
        self.changed.set()

    def keep_sending(self) -> None:
        away = swept = False
        wait = None
        while True:
            self.changed.wait(wait)
            self.changed.clear()
            ending = self.ending.is_set()
            try:
                self.store.send(self.record)
                if not swept:
                    send_waiting(self.store)
            except (*AWAY, UserError) as error:
                if not away:
                    reason = str(error).partition("\n")[0]
                    say(f"MLflow at {self.store.uri} does not answer ({reason[:200]}); going on")
                away, swept = True, False
                wait = min(60.0, 2 * (wait or 1.0))
            else:
                if away:
                    say(f"MLflow at {self.store.uri} answers again, and has everything now")
                away, swept, wait = False, True, None
            if ending:
                return

    def log_rows(self, rows: list[dict[str, float]]) -> None:
        """Training rows, each metric once against steps and once against tokens.

        Rows up to a step that the record has already are passed over: a run that was killed makes
        again those that came after its last checkpoint.
        """
        record, time = self.record, now()
        for row in rows:
            if row["step"] <= record.trained_steps:
                continue
            record.metrics += [
                (f"{axis}/{key}", value, time, int(row[x]))
                for axis, x in (("train", "step"), ("train_by_tokens", "tokens"))
                for key, value in row.items()
                if key not in ("step", "tokens")
            ]
            record.trained_steps = int(row["step"])
        self.commit()

    def log_figures(self, prefix: str, figures: dict[str, float], step: int) -> None:
        """Figures at a step; those that the record has already are passed over."""
        known = {(key, value, at) for key, value, _, at in self.record.metrics}
        self.record.metrics += [
            (f"{prefix}/{key}", value, now(), step)
            for key, value in figures.items()
            if (f"{prefix}/{key}", value, step) not in known
        ]
        self.commit()

    def log_artifact(self, path: Path) -> None:
        shutil.copy(path, self.record.folder / path.name)
        self.record.artifacts.append(path.name)
        self.commit()

    def log_plot(self, figure: "Figure", name: str) -> None:
        figure.savefig(self.record.folder / name)
        self.record.artifacts.append(name)
        self.commit()

    def tag(self, key: str, value: str) -> None:
        self.record.tags = {**self.record.tags, key: value}
        self.commit()

    def commit(self) -> None:
        self.record.save()
        self.changed.set()

    def finish(self, status: str = "FINISHED") -> None:
        """End the run and wait for the store, if it answers; a finished run keeps its end.

        Raises UserError where the disk takes no file.
        """
        if self.record.status != "FINISHED":
            self.record.status, self.record.ended = status, now()
        try:
            self.record.save()
        finally:
            self.ending.set()
            self.changed.set()
            self.thread.join()
            self.lock.release()
        if self.record.pending():
            say(
                f"kept for MLflow in {self.record.folder}; the next stage sends it, or "
                "`python -m pipelines.tracking`"
            )


def find_record(uri: str, card: Card, experiment: Experiment, go_on: bool) -> Record:
    """The record that Tracking.start continues or begins; a new one is not on disk yet."""
    same = [
        record
        for record in records(card.experiment, card.run_name)
        if record.spec_hash == card.spec_hash and record.uri == uri
    ]
    named = [r for r in same if card.mlflow_run_id and r.run_id == card.mlflow_run_id]
    known = named or [r for r in same if go_on or r.status != "FINISHED"]
    return known[-1] if known else new_record(uri, card, experiment)


def new_record(uri: str, card: Card, experiment: Experiment) -> Record:
    """A record of what is known before training; it adds to the card's MLflow run if it has one."""
    record = Record(uri, card.experiment, card.run_name, card.spec_hash, started=now())
    if card.mlflow_run_id:
        record.run_id, record.status, record.ended = card.mlflow_run_id, "FINISHED", now()
    arm = "baseline" if card.run["kappa_bits"] is None else "free transformer"
    record.tags = {"mlflow.source.git.commit": git_revision(), "arm": arm, KEY: record.key}
    optim = asdict(experiment.models[card.run["model"]].optim)
    settings: dict[str, Any] = {
        **{f"run.{key}": value for key, value in card.run.items()},
        **{f"architecture.{key}": value for key, value in card.architecture.items()},
        **{f"optim.{key}": value for key, value in optim.items()},
        "precision": experiment.compute.precision.value,
        "device": card.device,
        "vocab_size": card.vocab_size,
        "steps": experiment.steps(experiment.runs[card.run_name]),
        "git_revision": git_revision(),
        "data_hash": card.data_hash,
        "config_hash": card.spec_hash,
    }
    record.params = {key: str(value) for key, value in settings.items()}
    return record


def say(line: str) -> None:
    """A line on stderr that leaves a progress bar whole."""
    tqdm.write(line, file=sys.stderr)


def main() -> None:
    store = Store(store_uri())
    try:
        done = send_waiting(store)
    except AWAY as error:
        raise UserError(f"MLflow at {store.uri} does not answer: {error}") from None
    print(f"{len(done)} runs brought up to date at {store.uri}")


if __name__ == "__main__":
    errors.run(main)
