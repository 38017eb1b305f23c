"""Compares arms with the plain baseline at each token budget and over the last third of training.

Bounds of single documents are kept for the final budget alone. At the others the error of a
difference over documents is not known, and only seeds decide what counts.
"""

from dataclasses import dataclass

from pipelines.artifacts.budget_results import late_tokens
from pipelines.artifacts.estimate import Estimate
from pipelines.compare.arms import Arm, OverSeeds, grouped, over_seeds
from pipelines.compare.comparison import Comparison, from_plain


@dataclass(frozen=True)
class Cell:
    """An arm's bound, with mean and spread over its seeds."""

    bound: OverSeeds
    note: str  # what kind of figure it is; may be empty
    difference: Comparison | None  # from the plain baseline


Column = dict[str, Cell]  # by arm


@dataclass(frozen=True)
class BudgetTable:
    """Arms on one data set, a column for each budget and one for the last third of training."""

    columns: dict[str, Column]  # by their heads
    arms: list[Arm]

    @property
    def by_seeds(self) -> list[Comparison]:
        """Comparisons that only seeds decide, so none of the final bounds."""
        cells = [cell for column in self.columns.values() for cell in column.values()]
        return [c.difference for c in cells if c.difference and c.difference.documents is None]


def budget_table(arms: list[Arm], comparisons: list[Comparison]) -> BudgetTable:
    """The table of arms on one data set, whose final bounds ``comparisons`` compares."""
    arms = [arm for arm in arms if all(run.evaluation.budgets for run in arm.runs)]
    tokens = sorted({entry.tokens for arm in arms for entry in arm.first.evaluation.budgets})
    columns = {f"{number:,} tokens": at_budget(arms, number, comparisons) for number in tokens}
    return BudgetTable(columns | {"mean of the last third": over_last_third(arms)}, arms)


def at_budget(arms: list[Arm], tokens: int, comparisons: list[Comparison]) -> Column:
    """The column for a budget, with the arms all of whose seeds have it."""
    bounds: dict[str, list[Estimate]] = {}
    notes = {}
    for arm in arms:
        budgets = [entry for run in arm.runs for entry in run.evaluation.budgets]
        here = [entry for entry in budgets if entry.tokens == tokens]
        if len(here) == len(arm.runs):
            bounds[arm.name] = [entry.figures(arm.unit).bound for entry in here]
            notes[arm.name] = "" if here[0].annealed else "snapshot"
    final = {  # their errors over documents are known
        c.arm.name: c for c in comparisons if c.other.plain and c.arm.trained_tokens == tokens
    }
    differences = from_plain(arms, bounds, arms[0].unit) | final
    return {
        name: Cell(over_seeds(each), notes[name], differences.get(name))
        for name, each in bounds.items()
    }


def over_last_third(arms: list[Arm]) -> Column:
    """The column of means over the last third, compared if over the same budgets, at least two."""
    column: Column = {}
    groups = grouped(arms, lambda arm: late_tokens(run.evaluation.budgets for run in arm.runs))
    for budgets, group in groups.items():
        bounds = {arm.name: arm.last_third for arm in group}
        notes = {0: "budgets differ by seed", 1: "the final budget alone"}
        note = notes.get(len(budgets), f"{len(budgets)} budgets")
        several = len(budgets) > 1
        differences = from_plain(group, bounds, group[0].unit) if several else {}
        column |= {
            name: Cell(over_seeds(each), note, differences.get(name))
            for name, each in bounds.items()
        }
    return column
