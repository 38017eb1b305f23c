"""An MLflow store, and how a record of the outbox is sent to it."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# a server that hangs holds up the sending thread, and the end of a stage, by this long at most
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH
from requests import RequestException

from pipelines.common.errors import UserError
from pipelines.tracking.outbox import Record, records

# prints the traceback of what it then raises: of a database that is full or locked
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
DEFAULT_STORE = Path("mlflow.db")  # a local SQLite file
BATCH = 500  # metrics a call; the server's limit is 1000
MAX_TAG = MAX_TAG_VAL_LENGTH  # characters of a tag's value
KEY = "record"  # tag with the record's key: finds a run whose creation was not acknowledged
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
    """Create a local store: under another name, as a partial one can be neither opened nor
    repaired, and without waiting for the disk at each of MLflow's many steps.
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
    """An MLflow store, to which records are sent."""

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
        """Fill in ``run_id``: the run that it names, if it is still there; else the run with the
        record's key; else a new run, to which everything is sent.
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
        runs = self.client.search_runs([experiment_id], f"tags.{KEY} = '{key}'", max_results=1)
        return runs[0].info.run_id if runs else ""

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
            if experiment := self.client.get_experiment_by_name(name):
                return experiment.experiment_id
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
