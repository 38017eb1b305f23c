"""Stage `suite`: score a trained run on benchmarks.

    python -m pipelines.suite text_free_k1_2

Writes to results/<experiment>/<run>/, and adds the files to the MLflow run of the training:

    suite.json            all figures
    suite_scores.json     the score of each document
    suite_metrics.json    what `dvc metrics show` lists
    suite_samples/        prompts, answers and scores, as lm_eval logs them, packed

A run that lists `budgets` is scored at each of them. Answers for pass@k are drawn from the last.
Each task's outcome is kept in resume/ until all are done: a stage that was killed continues there.
"""

from typing import Any

import click

from pipelines.host.command_line import command, entries, run_command


@command(__doc__)
@click.argument(
    "name",
    help="A run of suite_runs in params.yaml.",
    shell_complete=entries("suite_runs"),
    metavar="RUN",
)
def main(**given: Any) -> None:
    from pipelines.suite import stage

    stage.main(**given)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.suite")
