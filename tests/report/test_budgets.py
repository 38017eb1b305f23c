"""Arms at each budget and over the last third; figures are bits per token."""

from pathlib import Path

import pytest

from pipelines.artifacts.results import BudgetFigures, Estimate, Figures, LastThird
from pipelines.report.analysis import Analysis
from pipelines.report.arms import Arm
from pipelines.report.budgets import BudgetTable, budget_table
from pipelines.report.comparison import compare
from pipelines.report.page import caveat
from tests.support.mutants import rejects
from tests.support.results import arms_of, run, write_experiment

HALF, FULL, LATE = "3,000 tokens", "6,500 tokens", "mean of the last third"


def with_budgets(arm: Arm, bounds: dict[int, list[float]], late: int = 1) -> None:
    """Give an arm these bounds of each seed, by budget; the last is annealed."""
    for i, one in enumerate(arm.runs):
        one.evaluation.budgets = [
            BudgetFigures(tokens, tokens, tokens == 6500, figures(arm, each[i]))
            for tokens, each in bounds.items()
        ]
        mean = sum(found[i] for found in list(bounds.values())[-late:]) / late
        one.evaluation.last_third = LastThird(late, mean)


def figures(arm: Arm, bound: float) -> Figures:
    estimate = Estimate(bound, 0.01)
    return Figures(nll=estimate) if arm.baseline else Figures(filtering=estimate)


@pytest.fixture
def arms(tmp_path: Path) -> list[Arm]:
    """`base` and `free` of two seeds each; final bounds 0.50, 0.52 and 0.48, 0.50."""
    runs = {
        f"{name}_s{seed}": spec | {"seed": seed}
        for name, spec in {"base": run(), "free": run(kappa=1.0)}.items()
        for seed in (0, 1)
    }
    bounds = {"base_s1": 0.52, "free_s0": 0.48}
    found = arms_of(write_experiment(tmp_path, runs, bounds))
    with_budgets(found[0], {3000: [0.90, 0.91], 6500: [0.50, 0.52]})
    with_budgets(found[1], {3000: [0.80, 0.83], 6500: [0.48, 0.50]})
    return found


def table(arms: list[Arm]) -> BudgetTable:
    return budget_table(arms, compare(arms))


def test_a_smaller_budget_is_compared_by_its_own_seeds(arms: list[Arm]) -> None:
    cell = table(arms).columns[HALF]["free"]
    assert (cell.bound.mean, cell.bound.spread) == pytest.approx((0.815, 0.03 / 2**0.5))
    assert (cell.seeds, cell.note) == (2, "snapshot")
    assert cell.difference is not None and cell.difference.documents is None
    assert cell.difference.mean == pytest.approx(-0.09)
    within = ((0.01**2 + 0.03**2) / 4) ** 0.5
    assert cell.difference.threshold == pytest.approx(4.3027 * within, rel=1e-4)
    assert cell.difference.verdict == "lower"
    assert table(arms).columns[HALF]["base"].difference is None


def test_the_final_budget_has_the_verdict_of_the_final_bounds(arms: list[Arm]) -> None:
    (final,) = compare(arms)
    assert table(arms).columns[FULL]["free"].difference == final
    assert final.documents == pytest.approx(0.01)
    assert len(table(arms).by_seeds) == 1  # the other budget


def test_without_seeds_nothing_is_claimed_at_smaller_budgets(arms: list[Arm]) -> None:
    alone = [Arm(arm.name, arm.runs[:1]) for arm in arms]
    difference = table(alone).columns[HALF]["free"].difference
    assert difference is not None
    assert (difference.verdict, difference.words) == ("not known", "its error is not known")
    assert "1 comparison was made" in " ".join(caveat(Analysis(alone, 16)))


def test_a_last_third_of_the_final_budget_alone_is_said_and_not_compared(arms: list[Arm]) -> None:
    cell = table(arms).columns[LATE]["free"]
    assert (cell.note, cell.difference) == ("the final budget alone", None)
    assert cell.bound.mean == pytest.approx(0.49)


@rejects(
    "report/budgets.py", "[tuple(entry.tokens", "[tuple(0", "averages over unlike budgets compared"
)
def test_last_thirds_are_compared_if_they_average_the_same_budgets(arms: list[Arm]) -> None:
    base, free = arms
    with_budgets(base, {5000: [0.60, 0.62], 6500: [0.50, 0.52]}, late=2)
    with_budgets(free, {5000: [0.40, 0.42], 6500: [0.48, 0.50]}, late=2)
    cell = table(arms).columns[LATE]["free"]
    assert cell.note == "2 budgets" and cell.difference is not None
    assert cell.bound.spread == pytest.approx(0.02 / 2**0.5)
    assert cell.difference.mean == pytest.approx(0.45 - 0.56)
    assert cell.difference.verdict == "lower"
    with_budgets(free, {5500: [0.40, 0.42], 6500: [0.48, 0.50]}, late=2)
    assert table(arms).columns[LATE]["free"].difference is None


def test_arms_without_budgets_are_left_out(arms: list[Arm]) -> None:
    for one in arms[0].runs:
        one.evaluation.budgets = []
    found = table(arms)
    assert [arm.name for arm in found.arms] == ["free"]
    assert found.columns[HALF]["free"].difference is None
