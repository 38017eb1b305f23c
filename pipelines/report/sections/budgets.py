"""The held-out bound at each token budget."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm
from pipelines.compare.budgets import Cell
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Picture, Section, Table, heading
from pipelines.report.style import GREY, Style, below, dots, log_places, millions, plain, spaced
from pipelines.report.wording import count, estimate, in_words

ANNEALING: dict[str, Style] = {
    "snapshot, not annealed": {"color": GREY, "ls": ":", "marker": "o", "mfc": "white"},
    "learning rate annealed to zero": {"color": GREY, "marker": "o"},
}


def section(analysis: Analysis) -> Section | None:
    blocks: list[Block] = []
    for data, table in analysis.budgets.items():
        if table.arms:
            unit = UNITS[table.arms[0].unit]
            words = f"{data}: bound at each budget and difference from the plain baseline, {unit}"
            drawn = bound_by_budget(table.arms, analysis.style)
            head = ["arm", *(cell for column in table.columns for cell in (column, "difference"))]
            columns = table.columns.values()
            rows = [
                [arm.name, *(cell for by_arm in columns for cell in pair(by_arm.get(arm.name)))]
                for arm in table.arms
            ]
            blocks += [
                Picture(f"budgets_{data}", drawn, f"Held-out bound against tokens on {data}"),
                heading(words),
                Table(head, rows),
            ]
    title = "The bound against training tokens"
    return Section("budgets", title, blocks) if blocks else None


def pair(cell: Cell | None) -> list[str]:
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
        look = dots(style[arm.name], 5)
        for run in arm.runs:
            for annealed, line, face in ((False, ":", "white"), (True, "-", look["color"])):
                entries = [each for each in run.evaluation.budgets if each.annealed == annealed]
                bounds = [each.figures(unit).bound.mean for each in entries]
                axes.plot([each.tokens for each in entries], bounds, line, mfc=face, lw=1.1, **look)
    plain(axes, "Held-out bound at each budget", "tokens (million)", UNITS[unit])
    budgets = {entry.tokens for arm in arms for entry in arm.first.evaluation.budgets}
    millions(axes, spaced(log_places(budgets)))
    below(figure, {arm.name: dots(style[arm.name], 5) for arm in arms} | ANNEALING, 3)
    return figure
