"""What further tokens buy: the held-out bound at each token budget."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm
from pipelines.compare.budgets import BudgetTable, Cell
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Picture, Section, Table, heading, prose
from pipelines.report.style import GREY, Style, below, plain, scale
from pipelines.report.wording import count, estimate, in_words

TEXT = """\
Held-out bounds at each token budget. Full markers are models whose learning rate was annealed to
zero for that budget. Hollow markers are snapshots taken before the learning rate decayed, which
raises them: compare hollow with hollow.

Bounds of single documents are kept for the final budget alone. Elsewhere the verdict is by seeds
alone, about models on these very documents; without a second seed nothing is claimed. The last
third of training is the mean of the budgets that lie in it, compared between arms that have the
same ones there."""


def section(analysis: Analysis) -> Section | None:
    budgets = {data: table for data, table in analysis.budgets.items() if table.arms}
    blocks: list[Block] = [prose(TEXT)]
    for data, table in budgets.items():
        alt = f"Held-out bound against tokens on {data}"
        unit = UNITS[table.arms[0].unit]
        blocks += [
            Picture(f"budgets_{data}", bound_by_budget(table.arms, analysis.style), alt),
            heading(f"{data}: bound at each budget and difference from the plain baseline, {unit}"),
            budget_rows(table),
        ]
    return Section("budgets", "What further tokens buy", blocks) if budgets else None


def budget_rows(table: BudgetTable) -> Table:
    head = [cell for column in table.columns for cell in (column, "difference")]
    rows = [
        [arm.name, *(cell for column in table.columns.values()
                     for cell in budget_cells(column.get(arm.name)))]
        for arm in table.arms
    ]  # fmt: skip
    return Table(["arm", *head], rows)


def budget_cells(cell: Cell | None) -> list[str]:
    """A bound with what it is the mean of, and its difference."""
    if cell is None:
        return ["–", "–"]
    bound = ", ".join(filter(None, (estimate(cell.bound), count(cell.seeds, "seed"), cell.note)))
    c = cell.difference
    return [bound, f"{in_words(c)}: {c.verdict} ({c.words})" if c else "–"]


def bound_by_budget(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Held-out bound against tokens trained: hollow snapshots of a trunk, full where annealed."""
    unit = arms[0].unit
    figure = Figure(figsize=(11, 4.8 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        colour, marker = style[arm.name]["color"], style[arm.name]["marker"] or "o"
        for run in arm.runs:
            for annealed, line, face in ((False, ":", "white"), (True, "-", colour)):
                points = [
                    (entry.tokens / 1e6, entry.figures(unit).bound.mean)
                    for entry in run.evaluation.budgets
                    if entry.annealed == annealed
                ]
                xs, ys = [x for x, _ in points], [y for _, y in points]
                axes.plot(xs, ys, line, marker=marker, ms=5, mfc=face, lw=1.1, color=colour)
    plain(axes, "Held-out bound at each budget", "tokens (million)", UNITS[unit])
    axes.set_xscale("log")
    budgets = {entry.tokens for arm in arms for entry in arm.first.evaluation.budgets}
    ticks = scale(sorted(budgets), log=True).ticks()
    axes.set_xticks([tick / 1e6 for tick in ticks], [f"{tick / 1e6:.3g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    handles = [
        Line2D([], [], color=style[arm.name]["color"], marker=style[arm.name]["marker"] or "o",
               ms=5, label=arm.name) for arm in arms
    ]  # fmt: skip
    handles += [
        Line2D([], [], color=GREY, ls=":", marker="o", mfc="white", label="snapshot, not annealed"),
        Line2D([], [], color=GREY, marker="o", label="learning rate annealed to zero"),
    ]
    below(figure, handles, 3)
    return figure
