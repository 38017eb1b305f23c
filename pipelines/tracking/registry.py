"""MLflow's model registry: the best arm of an experiment under an alias."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from pipelines.artifacts.checkpoint import Manifest
from pipelines.common.errors import UserError
from pipelines.tracking.location import in_project, store_uri
from pipelines.tracking.models import model_name
from pipelines.tracking.outbox import records
from pipelines.tracking.store import AWAY, Store, send_waiting


def register_model(manifest: Manifest, alias: str, description: str) -> str:
    """Give the last checkpoint of a run an alias in the registered model that has the experiment's
    name, as a version of it; returns the number of that, which is the same if it is done again.

    Raises UserError if the store is away or has no logged model of the run.
    """
    store = Store(store_uri())
    mlflow.set_tracking_uri(store.uri)  # MLflow looks the model up there, whatever client asks
    with answering(store):
        send_waiting(store)
        model = model_id(store, manifest)
        version = version_of(store.client, manifest.experiment, model)
        link(store.client, model, version)
        store.client.update_model_version(manifest.experiment, version.version, description)
        store.client.set_registered_model_alias(manifest.experiment, alias, version.version)
    return str(version.version)


@contextmanager
def answering(store: Store) -> Iterator[None]:
    """Raises UserError if the store does not answer."""
    try:
        yield
    except AWAY as error:
        raise UserError(f"MLflow at {store.uri} does not answer: {error}") from None


def model_id(store: Store, manifest: Manifest, listed: int | None = None) -> str:
    """MLflow's id of the logged model of a run's last checkpoint, or of that of a smaller budget;
    raises UserError if there is none: evaluation makes it.
    """
    name = model_name(manifest.run_name, listed)
    for record in reversed(list(records(manifest.experiment, manifest.run_name))):
        same = record.spec_hash == manifest.spec_hash and record.uri == in_project(store.uri)
        if same and store.stage_of(record.run_id) == "active" and name in record.model_ids:
            return record.model_ids[name]
    raise UserError(
        f"MLflow at {store.uri} has no model {name}: `dvc repro evaluate@{manifest.run_name}` "
        "makes it, and `python -m pipelines.tracking --rebuild` brings back a lost one"
    )


def version_of(client: MlflowClient, experiment: str, model_id: str) -> ModelVersion:
    """The version of the registered model that is this logged model; made if there is none."""
    try:
        client.create_registered_model(
            experiment, description=f"Models of the experiment {experiment}, the best by its bound"
        )
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    source = f"models:/{model_id}"
    for version in client.search_model_versions(f"name = '{experiment}'"):
        if version.source == source:
            return version
    return client.create_model_version(experiment, source, model_id=model_id)


def link(client: MlflowClient, model_id: str, version: ModelVersion) -> None:
    """Let MLflow's list of logged models name the version."""
    known = json.loads(client.get_logged_model(model_id).tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    mine = {"name": version.name, "version": version.version}
    if mine not in known:
        tag = json.dumps([*known, mine])
        client.set_logged_model_tags(model_id, {MLFLOW_MODEL_VERSIONS: tag})
