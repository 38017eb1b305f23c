"""What further tokens buy: the held-out bound at each token budget."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section
from pipelines.report.style import GREY, Style, below, plain, scale


def section(analysis: Analysis) -> Section | None:
    tables = {data: table for data, table in analysis.budgets.items() if table.arms}
    figures = {
        f"budgets_{data}": (
            bound_by_budget(table.arms, analysis.style),
            f"Held-out bound against tokens on {data}",
        )
        for data, table in tables.items()
    }
    if not tables:
        return None
    return Section("budgets", "What further tokens buy", figures=figures, content=tables)


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
