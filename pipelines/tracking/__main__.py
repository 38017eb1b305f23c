"""Send to MLflow what still waits on disk: what was logged while its server was away.

    python -m pipelines.tracking

Each run is kept in tracking/ until the store (MLFLOW_TRACKING_URI, or mlflow.db beside params.yaml)
has it whole. The next stage sends it, too.
"""

from pipelines import cli


def main() -> None:
    from pipelines.tracking.run import main

    main()


if __name__ == "__main__":
    cli.run("tracking")
