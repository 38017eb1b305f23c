"""What is measured at each budget of a run, in the order of the budgets."""

from typing import Any

from pipelines.schema import Budget, Experiment, Run


def at_budget(
    experiment: Experiment, run: Run, budget: Budget, measured: dict[str, Any]
) -> dict[str, Any]:
    """What was ``measured`` of a model, with the training behind it."""
    return {
        "tokens": budget.steps * experiment.batch_tokens(run),
        "listed": budget.listed,
        "annealed": budget.annealed,
        **measured,
    }


def in_last_third(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the last third of the training."""
    return [one for one in series if 3 * one["tokens"] >= 2 * series[-1]["tokens"]]
