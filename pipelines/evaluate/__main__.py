"""Stage `evaluate`: measure a trained run on held-out data.

    python -m pipelines.evaluate free_k1_2

Writes results/<experiment>/<run>/evaluation.json (all figures), details.json (samples, KL of each
bit, the bound of each document) and metrics.json (the few that `dvc metrics show` lists), and adds
them to the MLflow run of the training.
"""

from typing import Any

from pipelines.host.command_line import RUN, command, run_command


@command(__doc__)
@RUN
def main(**given: Any) -> None:
    from pipelines.evaluate import stage

    stage.main(**given)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.evaluate")
