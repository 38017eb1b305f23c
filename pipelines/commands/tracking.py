"""Bring MLflow up to date with all runs of this project.

    ftlab tracking

Sends what the store (MLFLOW_TRACKING_URI, or mlflow.db beside params.yaml) lacks of the runs in
checkpoints/, resume/, results/ and sweeps/: what was trained while its server was away, or
everything, if mlflow.db was deleted or moved (docs/tracking.md).
"""

from pipelines.host.command_line import command


@command(__doc__)
def main() -> None:
    from pipelines.tracking.store import Store
    from pipelines.tracking.sync import sync_all

    store = Store()
    with store.answering():
        store.client  # noqa: B018  # opens it, even if nothing is to be sent
        runs = sync_all(store)
    print(f"{runs} runs are up to date at {store.name}")
