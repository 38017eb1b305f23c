"""MLflow: one run per training run, continued by resume and by evaluation.

The store is ``MLFLOW_TRACKING_URI``, or a local SQLite file beside params.yaml. Everything goes
into a record on disk first (outbox.py) and from there to the store in a thread of its own: a store
that is away, slow or dying stops no training, and gets the rest when it is back.

    python -m pipelines.tracking      send what is still waiting
"""

import shutil
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipelines.artifacts.checkpoint import Manifest
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.common.provenance import git_revision
from pipelines.config.schema import Experiment
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.store import AWAY, KEY, MAX_TAG, Store, now, send_waiting, store_uri


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

    def start(self, manifest: Manifest, experiment: Experiment, go_on: bool) -> None:
        """Continue the record of this very run if it was cut short or if ``go_on`` (resumed from a
        checkpoint, evaluated); else begin a new one. Starts sending.
        """
        self.open(find_record(self.store.uri, manifest, experiment, go_on))

    def open(self, record: Record) -> None:
        """Continue this record and start sending."""
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

        Rows up to a step that the record has already are skipped: a run that was killed repeats
        those after its last checkpoint.
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
        """Figures at a step; those that the record has already are skipped."""
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

    def tag(self, key: str, value: str) -> None:
        self.record.tags = {**self.record.tags, key: value}
        self.commit()

    def commit(self) -> None:
        self.record.save()
        self.changed.set()

    def finish(self, status: str = "FINISHED") -> None:
        """End the run and wait for the store, if it answers; a finished run keeps its end.

        Raises UserError if the disk is full or read-only.
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


def find_record(uri: str, manifest: Manifest, experiment: Experiment, go_on: bool) -> Record:
    """The record that Tracking.start continues or begins; a new one is not on disk yet."""
    same = [
        record
        for record in records(manifest.experiment, manifest.run_name)
        if record.spec_hash == manifest.spec_hash and record.uri == uri
    ]
    named = [r for r in same if manifest.mlflow_run_id and r.run_id == manifest.mlflow_run_id]
    known = named or [r for r in same if go_on or r.status != "FINISHED"]
    return known[-1] if known else new_record(uri, manifest, experiment)


def new_record(uri: str, manifest: Manifest, experiment: Experiment) -> Record:
    """A record of what is known before training; it adds to the MLflow run of the manifest if
    that has one.
    """
    record = Record(uri, manifest.experiment, manifest.run_name, manifest.spec_hash, started=now())
    if manifest.mlflow_run_id:
        record.run_id, record.status, record.ended = manifest.mlflow_run_id, "FINISHED", now()
    arm = "baseline" if manifest.run["kappa_bits"] is None else "free transformer"
    record.tags = {"mlflow.source.git.commit": git_revision(), "arm": arm, KEY: record.key}
    if not manifest.mlflow_run_id:  # else the run has those of its training
        record.tags |= statement(experiment)
    optim = asdict(experiment.models[manifest.run["model"]].optim)
    settings: dict[str, Any] = {
        **{f"run.{key}": value for key, value in manifest.run.items()},
        **{f"architecture.{key}": value for key, value in manifest.architecture.items()},
        **{f"optim.{key}": value for key, value in optim.items()},
        "precision": experiment.compute.precision.value,
        "device": manifest.device,
        "vocab_size": manifest.vocab_size,
        "steps": experiment.steps(experiment.runs[manifest.run_name]),
        "git_revision": git_revision(),
        "data_hash": manifest.data_hash,
        "config_hash": manifest.spec_hash,
    }
    record.params = {key: str(value) for key, value in settings.items()}
    return record


def statement(experiment: Experiment) -> dict[str, str]:
    """What the experiment asks and expects, as tags."""
    expected = "\n".join(map(str, experiment.expectation))
    tags = {"question": experiment.question or "", "expectation": expected}
    return {key: text[:MAX_TAG] for key, text in tags.items() if text}


def main() -> None:
    store = Store(store_uri())
    try:
        done = send_waiting(store)
    except AWAY as error:
        raise UserError(f"MLflow at {store.uri} does not answer: {error}") from None
    print(f"{len(done)} runs brought up to date at {store.uri}")
