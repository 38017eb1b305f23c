"""Arms at each budget and over the last third; figures are bits per token."""

from copy import deepcopy
from dataclasses import replace
from math import sqrt

import pytest

from pipelines.artifacts.results import BudgetFigures, Estimate, Figures
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import budget_table, compare
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.verdicts import caveat
from tests.support.mutants import rejects
from tests.support.results import PAIR, seeded

HALF, FULL, LATE = "3,000 tokens", "6,500 tokens", "mean of the last third"


def with_budgets(arm, bounds):
    """Give an arm these bounds of each seed, by budget; the last is annealed."""

    def figures(bound):
        return Figures(**{"nll" if arm.baseline else "filtering": Estimate(bound, 0.01)})

    for i, one in enumerate(arm.runs):
        one.evaluation.budgets = [
            BudgetFigures(tokens, tokens, tokens == 6500, figures(each[i]))
            for tokens, each in bounds.items()
        ]


@pytest.fixture
def arms(tmp_path):
    """`base` and `free` of two seeds each, with a snapshot at half of the budget."""
    base, free = seeded(tmp_path, PAIR, {"base": [0.50, 0.52], "free": [0.48, 0.50]}).arms
    with_budgets(base, {3000: [0.90, 0.91], 6500: [0.50, 0.52]})
    with_budgets(free, {3000: [0.80, 0.83], 6500: [0.48, 0.50]})
    return [base, free]


def table(arms):
    return budget_table(arms, compare(arms))


def test_a_smaller_budget_is_compared_by_its_own_seeds(arms):
    cell = table(arms).columns[HALF]["free"]
    assert (cell.bound.mean, cell.bound.spread) == pytest.approx((0.815, 0.03 / 2**0.5))
    assert cell.note == "snapshot"
    assert cell.difference.documents is None
    assert cell.difference.mean == pytest.approx(-0.09)
    within = sqrt((0.01**2 + 0.03**2) / 4)
    assert cell.difference.threshold == pytest.approx(4.3027 * within, rel=1e-4)
    assert cell.difference.verdict == "lower"
    assert table(arms).columns[HALF]["base"].difference is None


def test_the_final_budget_has_the_verdict_of_the_final_bounds(arms):
    (final,) = compare(arms)
    assert table(arms).columns[FULL]["free"].difference == final
    assert final.documents == pytest.approx(0.0001)
    assert len(table(arms).by_seeds) == 1  # the other budget


def test_without_seeds_nothing_is_claimed_at_smaller_budgets(arms):
    alone = [Arm(arm.name, arm.runs[:1]) for arm in arms]
    difference = table(alone).columns[HALF]["free"].difference
    assert (difference.verdict, difference.words) == ("not known", "its error is not known")
    assert "1 comparison was made" in " ".join(caveat(Analysis(alone, EvaluationConfig())))


def test_a_last_third_of_the_final_budget_alone_is_said_and_not_compared(arms):
    cell = table(arms).columns[LATE]["free"]
    assert (cell.note, cell.difference) == ("the final budget alone", None)
    assert cell.bound.mean == pytest.approx(0.49)


@rejects("result_files.late_tokens: («entry.tokens→0»", "averages over unlike budgets compared")
def test_last_thirds_are_compared_if_they_average_the_same_budgets(arms):
    base, free = arms
    with_budgets(base, {5000: [0.60, 0.62], 6500: [0.50, 0.52]})
    with_budgets(free, {5000: [0.40, 0.42], 6500: [0.48, 0.50]})
    cell = table(arms).columns[LATE]["free"]
    assert cell.note == "2 budgets"
    assert cell.bound.spread == pytest.approx(0.02 / 2**0.5)
    assert cell.difference.mean == pytest.approx(0.45 - 0.56)
    assert cell.difference.documents is None  # known of the final bounds alone
    assert cell.difference.verdict == "lower"
    seeds = [run.evaluation for run in free.runs]
    with_budgets(free, {5500: [0.40, 0.42], 6500: [0.48, 0.50]})
    assert table(arms).columns[LATE]["free"].difference is None
    seeds[0].budgets[0] = replace(seeds[0].budgets[0], tokens=5000)
    cell = table(arms).columns[LATE]["free"]
    assert (cell.note, cell.difference) == ("budgets differ by seed", None), "the first is alike"
    with_budgets(base, {5500: [0.60, 0.62], 6500: [0.50, 0.52]})
    base.runs[0].evaluation.budgets = seeds[0].budgets
    assert table(arms).columns[LATE]["free"].difference is None, "both arms alike"


@rejects("comparison.budget_table: .tokens for arm in arms«→[:1]»", "the budgets of the first arm")
def test_columns_rise_with_the_tokens_whichever_arm_has_them(arms):
    base, free = arms
    with_budgets(base, {1_048_576: [0.6, 0.6], 524_288: [0.7, 0.7], 6500: [0.5, 0.52]})
    with_budgets(free, {262_144: [0.8, 0.8], 6500: [0.48, 0.50]})
    heads = [f"{tokens:,} tokens" for tokens in (6500, 262_144, 524_288, 1_048_576)]
    assert [*table(arms).columns] == [*heads, LATE]


@rejects(
    "comparison.at_budget: «len(here) == len(arm.runs)→here»", "a budget that only some seeds have"
)
def test_a_budget_is_an_arms_if_all_its_seeds_have_it(arms):
    base, free = arms
    del free.runs[1].evaluation.budgets[0]
    assert [*table(arms).columns[HALF]] == ["base"]
    assert [*table(arms).columns[FULL]] == ["base", "free"]
    base.runs[0].evaluation.budgets = []
    assert [arm.name for arm in table(arms).arms] == ["free"]


@rejects("comparison.from_plain: «poolable(arm, other, present)→(arm, other)»", "of two alone")
def test_spreads_at_a_budget_are_pooled_over_all_arms(arms):
    third = Arm("third", deepcopy(arms[1].runs))
    with_budgets(third, {3000: [0.70, 0.76], 6500: [0.48, 0.50]})
    found = table([*arms, third]).columns[HALF]["free"].difference
    assert found.pooled.error == pytest.approx(sqrt((0.01**2 + 0.03**2 + 0.06**2) / 6))


def test_arms_without_budgets_are_left_out(arms):
    for one in arms[0].runs:
        one.evaluation.budgets = []
    found = table(arms)
    assert [arm.name for arm in found.arms] == ["free"]
    assert found.columns[HALF]["free"].difference is None
