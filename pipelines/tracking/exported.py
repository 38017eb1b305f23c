"""An exported model among the artifacts of the logged model that is its checkpoint's."""

from pathlib import Path

from pipelines.artifacts.checkpoint import Manifest
from pipelines.common.errors import UserError
from pipelines.tracking.location import store_uri
from pipelines.tracking.registry import answering, model_id
from pipelines.tracking.store import AWAY, Store, send_waiting


class Entry:
    """MLflow's logged model of a checkpoint; raises UserError if the store is away or lacks it."""

    def __init__(self, manifest: Manifest, listed: int | None) -> None:
        """``listed``: the smaller budget that it is of, if it is."""
        self.store = Store(store_uri())
        with answering(self.store):
            send_waiting(self.store)
            self.id = model_id(self.store, manifest, listed)

    def hold(self, path: Path) -> None:
        """Copy a file, or what a folder holds, in the place of files of the same names."""
        client = self.store.client
        log = client.log_model_artifacts if path.is_dir() else client.log_model_artifact
        try:
            log(self.id, str(path))
        except AWAY as error:
            raise UserError(
                f"{path} is written; MLflow at {self.store.uri} did not take it: {error}"
            ) from None
