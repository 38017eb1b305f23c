"""An MLflow store, and how a record of the outbox is sent to it."""

import logging
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# a server that hangs holds up the sending thread, and the end of a stage, by this long at most
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE
from requests import RequestException

from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.tracking.datasets import dataset_input
from pipelines.tracking.location import (
    artifacts_of,
    bring_places_up_to_date,
    in_project,
    local_file,
    one_at_a_time,
)
from pipelines.tracking.models import send_models
from pipelines.tracking.outbox import NOTHING, Record, records

# prints the traceback of what it then raises: of a database that is full or locked
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
BATCH = 500  # metrics a call; the server's limit is 1000
KEY = "record"  # tag with the record's key: finds a run whose creation was not acknowledged
NOTE = "note"  # tag of an experiment: the description that we gave it
AWAY = (MlflowException, RequestException, OSError)


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
                self.database = local_file(uri)
                created = self.database is not None and not self.database.exists()
                if self.database and created:
                    create(self.database)
                self.client = MlflowClient(uri)
                if self.database and not created:
                    bring_places_up_to_date(self.database)
        except MlflowException as error:
            raise UserError(f"MLflow store {uri}: {str(error).splitlines()[0]}") from None

    def send(self, record: Record) -> None:
        """Send what the store lacks, in order; raises one of AWAY, with what was sent noted, or
        UserError where that cannot be noted.
        """
        self.find_run(record)
        wanted, sent, run_id = record.saved, NOTHING | record.sent, record.run_id
        self.send_description(record, wanted, sent)
        if sent["inputs"] != wanted["inputs"]:  # those that it has, it takes as once
            inputs = record.inputs[: wanted["inputs"]]
            self.client.log_inputs(run_id, [dataset_input(content) for content in inputs])
            record.note(inputs=wanted["inputs"])
        if sent["models"] != wanted["models"]:
            send_models(
                self.client, record, wanted["models"], self.experiment_id(record.experiment)
            )
            record.note(models=wanted["models"])
        for start in range(sent["metrics"], wanted["metrics"], BATCH):
            # a store takes the same point (key, value, time, step) twice as once
            end = min(start + BATCH, wanted["metrics"])
            points = [metric(record, point) for point in record.metrics[start:end]]
            self.client.log_batch(run_id, points)
            record.note(metrics=end)
        for i in range(sent["artifacts"], wanted["artifacts"]):
            self.client.log_artifact(run_id, str(record.folder / record.artifacts[i]))
            record.note(artifacts=i + 1)
        if sent.get("status") != wanted["status"]:
            if wanted["status"] == "RUNNING":
                self.client.update_run(run_id, wanted["status"])
            else:
                self.client.set_terminated(run_id, wanted["status"], record.ended)
            record.note(status=wanted["status"])

    def send_description(
        self, record: Record, wanted: dict[str, Any], sent: dict[str, Any]
    ) -> None:
        """Parameters and tags that are new, the experiment's description and the parent run."""
        run_id = record.run_id
        if sent.get("params") != wanted["params"]:
            new = list(record.params.items())[sent.get("params", 0) : wanted["params"]]
            self.client.log_batch(run_id, params=[Param(key, value) for key, value in new])
            record.note(params=wanted["params"])
        if (known := sent.get("tags", {})) != wanted["tags"]:
            new = [item for item in wanted["tags"].items() if item not in known.items()]
            self.client.log_batch(run_id, tags=[RunTag(key, value) for key, value in new])
            record.note(tags=wanted["tags"])
        if sent["experiment_note"] != wanted["experiment_note"]:
            self.describe_experiment(record.experiment, wanted["experiment_note"])
            record.note(experiment_note=wanted["experiment_note"])
        nested = sent["parent"] == wanted["parent"]
        if not nested and (parent := self.id_of(record, wanted["parent"])):
            self.client.set_tag(run_id, MLFLOW_PARENT_RUN_ID, parent)
            record.note(parent=wanted["parent"])

    def describe_experiment(self, name: str, note: str) -> None:
        """Set the description of an experiment, unless somebody has written another."""
        experiment_id = self.experiment_id(name)
        tags = self.client.get_experiment(experiment_id).tags
        if tags.get(MLFLOW_RUN_NOTE, "") == tags.get(NOTE, ""):
            self.client.set_experiment_tag(experiment_id, MLFLOW_RUN_NOTE, note)
            self.client.set_experiment_tag(experiment_id, NOTE, note)

    def find_run(self, record: Record) -> None:
        """Fill in ``run_id``: the run that it names, if it is still there; else the run with the
        record's key; else a new run, to which everything is sent.
        """
        if record.run_id in self.seen:
            return
        experiment_id = self.experiment_id(record.experiment)
        if record.run_id and self.is_active(record.run_id):
            self.seen.add(record.run_id)
            if not record.sent:  # known from a checkpoint: training has described it
                settled = {"params": len(record.params), "tags": record.tags}
                record.note(**settled, status=record.status)
            return
        record.sent = {}
        record.run_id = self.id_of(record, record.key) or self.client.create_run(
            experiment_id,
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
        return self.stage_of(run_id) == "active"

    def stage_of(self, run_id: str) -> str:
        """MLflow's word: active or deleted; "" of a run that the store does not know."""
        try:
            return str(self.client.get_run(run_id).info.lifecycle_stage)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return ""

    def experiment_id(self, name: str) -> str:
        """That of the experiment, which is made or restored if it is not there."""
        with one_at_a_time(self.uri):
            if experiment := self.client.get_experiment_by_name(name):
                if experiment.lifecycle_stage != "active":
                    self.client.restore_experiment(experiment.experiment_id)
                    say(f"MLflow experiment {name} was deleted; restored, with the runs it had")
                return str(experiment.experiment_id)
            place = artifacts_of(self.database, name) if self.database else None
            return self.client.create_experiment(name, artifact_location=place)


def metric(record: Record, point: tuple[Any, ...]) -> Metric:
    """A point of a record, with the logged model and the dataset that it is of, if any."""
    key, value, time, step, *of = point
    if not of:
        return Metric(key, value, time, step)
    model, name, digest = of
    return Metric(
        key, value, time, step, model_id=record.model_ids[model], dataset_name=name,
        dataset_digest=digest, run_id=record.run_id,
    )  # fmt: skip


def send_waiting(store: Store) -> list[Record]:
    """Send the records of ended stages that wait for this store; raises one of AWAY."""
    done = []
    for record in records():
        if record.uri != in_project(store.uri) or not record.pending():
            continue
        try:
            with FileLock(record.folder / "lock", timeout=0):
                store.send(record)
                done.append(record)
        except Timeout:  # its own stage is at it
            continue
    return done
