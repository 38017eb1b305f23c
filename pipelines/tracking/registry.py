"""MLflow's registry of models, and what it holds for them: the best arm, exported models."""

from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils.uri import is_local_uri

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.paths import published_journal
from pipelines.common.errors import UserError
from pipelines.tracking.measured import read_tracked
from pipelines.tracking.store import AWAY, Store
from pipelines.tracking.sync import Sync
from pipelines.tracking.tracked import model_name


class ModelEntry:
    """MLflow's logged model of a checkpoint."""

    def __init__(self, manifest: Manifest, listed: int | None = None) -> None:
        """``listed`` is the model's smaller budget, if it has one. Raises UserError if the store is
        away or has no such model: evaluation makes it.
        """
        self.store, name = Store(), model_name(manifest.run_name, listed)
        self.client = self.store.client
        run = read_tracked(published_journal(manifest.experiment, manifest.run_name))
        with self.store.answering():
            known = Sync(self.store)(run)
        if not known or name not in known.models:
            raise UserError(
                f"MLflow at {self.store.uri} has no model {name}: "
                f"`dvc repro evaluate@{manifest.run_name}` makes it"
            )
        model = known.models[name]
        self.id, self.place = model.model_id, model.artifact_location

    def hold(self, path: Path) -> str:
        """Add a file, or what a folder holds, in place of files of the same names; returns in words
        where they are then.

        In a store on this machine a tag names the path instead. The store's own place is absolute:
        a moved or copied project would not find it, or would write into another's.
        """
        try:
            if is_local_uri(self.place):
                self.client.set_logged_model_tags(self.id, {"exported": str(path)})
                return f"models:/{self.id}: in MLflow, the tag `exported` names it"
            client = self.client
            log = client.log_model_artifacts if path.is_dir() else client.log_model_artifact
            log(self.id, str(path))
        except AWAY as error:
            raise UserError(
                f"{path} is written; MLflow at {self.store.uri} did not take it: {error}"
            ) from None
        return f"models:/{self.id}: the same, in MLflow"


def register_model(manifest: Manifest, alias: str, description: str) -> str:
    """Make a run's last checkpoint a version of the registered model with the experiment's name,
    and give it an alias. Returns the version's number, which is the same if it is done again.
    Raises UserError if the store is away or has no logged model of the run.
    """
    entry = ModelEntry(manifest)
    mlflow.set_tracking_uri(entry.store.uri)  # where MLflow looks the model up
    with entry.store.answering():
        version = version_of(entry.client, manifest.experiment, entry.id)
        entry.client.update_model_version(manifest.experiment, version.version, description)
        entry.client.set_registered_model_alias(manifest.experiment, alias, version.version)
    return str(version.version)


def version_of(client: MlflowClient, experiment: str, model_id: str) -> ModelVersion:
    """The version of the registered model for this logged model; made if there is none."""
    source = f"models:/{model_id}"
    for version in client.search_model_versions(f"name = '{experiment}'"):
        if version.source == source:
            return version
    return mlflow.register_model(source, experiment)
