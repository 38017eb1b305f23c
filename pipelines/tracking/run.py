"""MLflow: one run per training run, continued by resume and by evaluation.

The store is ``MLFLOW_TRACKING_URI``, or a local SQLite file beside params.yaml. Everything goes
into a record on disk first (outbox.py) and from there to the store in a thread of its own: a store
that is away, slow or dying stops no training, and gets the rest when it is back.
"""

import threading
from dataclasses import asdict

from filelock import FileLock

from pipelines.artifacts.checkpoint import Manifest
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.config.schema import Experiment
from pipelines.tracking.describe import experiment_note, run_params, run_tags, statement
from pipelines.tracking.figures import log_data
from pipelines.tracking.location import in_project, store_uri
from pipelines.tracking.log import RunLog, now, params_with
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.store import AWAY, KEY, Store, send_waiting


class Tracking(RunLog):
    """The record of a run, once started, and the thread that sends it."""

    def __init__(self, experiment_name: str) -> None:
        """Raises UserError if the store is of no known kind, or a local one cannot be opened."""
        self.experiment_name = experiment_name
        self.store = Store(store_uri())
        self.changed, self.ending = threading.Event(), threading.Event()

    @property
    def run_id(self) -> str:
        """MLflow's id of the run; "" as long as the store has not answered."""
        return self.record.run_id

    def start(self, manifest: Manifest, experiment: Experiment, go_on: bool) -> None:
        """Continue the record of this very run if it was cut short or if ``go_on`` (resumed from a
        checkpoint, evaluated); else begin a new one. Starts sending.
        """
        record = find_record(self.store.uri, manifest, experiment, go_on)
        if not record.parent:  # else a trial: the sweep says what the experiment is
            record.experiment_note = experiment_note(experiment)
        self.open(record)
        log_data(self, manifest)

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
                self.store.seen.clear()  # the run or its experiment may have been deleted
                away, swept = True, False
                wait = min(60.0, 2 * (wait or 1.0))
            else:
                if away:
                    say(f"MLflow at {self.store.uri} answers again, and has everything now")
                away, swept, wait = False, True, None
            if ending:
                return

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
        if record.spec_hash == manifest.spec_hash and record.uri == in_project(uri)
    ]
    named = [r for r in same if manifest.mlflow_run_id and r.run_id == manifest.mlflow_run_id]
    known = named or [r for r in same if go_on or r.status != "FINISHED"]
    if not known:
        return new_record(uri, manifest, experiment)
    record = known[-1]  # one of an earlier version has fewer parameters and tags
    record.params = params_with(record.params, params_of(manifest, experiment))
    record.tags = run_tags(manifest) | record.tags
    return record


def new_record(uri: str, manifest: Manifest, experiment: Experiment) -> Record:
    """A record of what is known before training; it adds to the MLflow run of the manifest if
    that has one.
    """
    store, started = in_project(uri), now()
    record = Record(store, manifest.experiment, manifest.run_name, manifest.spec_hash, started)
    if manifest.mlflow_run_id:
        record.run_id, record.status, record.ended = manifest.mlflow_run_id, "FINISHED", now()
    record.tags = run_tags(manifest) | {KEY: record.key}
    if not manifest.mlflow_run_id:  # else the run has those of its training
        record.tags |= statement(experiment.question, experiment.expectation)
    record.params = params_of(manifest, experiment)
    return record


def params_of(manifest: Manifest, experiment: Experiment) -> dict[str, str]:
    optim = asdict(experiment.models[manifest.run["model"]].optim)
    steps = experiment.steps(experiment.runs[manifest.run_name])
    return run_params(manifest, optim, steps, precision=experiment.compute.precision.value)


def main() -> None:
    store = Store(store_uri())
    try:
        runs = send_waiting(store)
    except AWAY as error:
        raise UserError(f"MLflow at {store.uri} does not answer: {error}") from None
    print(f"{len(runs)} runs brought up to date at {store.uri}")
