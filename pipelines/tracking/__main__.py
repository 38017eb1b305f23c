"""Bring MLflow up to date with all runs of this project.

    python -m pipelines.tracking

Sends what the store (MLFLOW_TRACKING_URI, or mlflow.db beside params.yaml) lacks of the runs in
checkpoints/, resume/, results/ and sweeps/: what was trained while its server was away, or
everything, if mlflow.db was deleted or moved (docs/tracking.md).
"""

from pipelines import cli
from pipelines.tracking.store import Store
from pipelines.tracking.sync import sync_all


def main() -> None:
    store = Store()
    with store.answering():
        runs = sync_all(store)
    print(f"{runs} runs are up to date at {store.uri}")


if __name__ == "__main__":
    cli.run("tracking")
