"""Send to MLflow what still waits on disk: what was logged while its server was away.

    python -m pipelines.tracking               send what still waits
    python -m pipelines.tracking --rebuild     bring back what the store has lost

Each run is kept in tracking/ until the store (MLFLOW_TRACKING_URI, or mlflow.db beside params.yaml)
has it whole. The next stage sends it, too. A store that has lost runs, as with a deleted mlflow.db,
gets them back from tracking/, checkpoints/ and results/ (docs/tracking.md).
"""

from pipelines import cli


def main(rebuild: bool = False) -> None:
    if rebuild:
        from pipelines.tracking.rebuild import main
    else:
        from pipelines.tracking.run import main

    main()


if __name__ == "__main__":
    cli.run("tracking")
