"""Benchmarks during training, as Figures 5 to 7 of the paper: a small panel for each."""

from collections.abc import Mapping
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from pipelines.compare.arms import Arm
from pipelines.report.benchmarks.table import Benchmarks, Task, suite_of
from pipelines.report.style import GREY, Style, below, plain, scale

COLUMNS, TICKS = 4, 4


def with_budgets(benchmarks: Benchmarks) -> list[Arm]:
    return [arm for arm in benchmarks.arms if all(suite_of(run).budgets for run in arm.runs)]


def during_training(benchmarks: Benchmarks, style: Mapping[str, Style]) -> Figure:
    """Score against tokens: a dot per seed, a line through the means; hollow where not annealed."""
    arms, tasks = with_budgets(benchmarks), benchmarks.tasks
    columns = min(COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(11 if columns > 2 else 4.4 * columns, 2.3 * rows + 0.9))
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    tokens = sorted({budget.tokens for arm in arms for budget in suite_of(arm.first).budgets})
    ticks = scale(tokens, log=True).ticks()
    ticks = ticks[::-1][:: -(-len(ticks) // TICKS)][::-1]  # with the last
    for i, (axes, task) in enumerate(zip(panels, tasks, strict=False)):
        for arm in arms:
            draw(axes, arm, task, style[arm.name])
        last = i + columns >= len(tasks)  # of its column
        plain(axes, "", "tokens (million)" if last else "", "")
        axes.set_title(task.name, loc="left", fontsize=10, fontweight="bold")
        lower = "" if task.higher_is_better else " ↓"
        axes.set_title(f"{task.metric}{lower}", loc="right", fontsize=8, color=GREY)
        axes.set_xscale("log")
        axes.set_xlim(0.9 * tokens[0] / 1e6, 1.1 * tokens[-1] / 1e6)
        axes.set_xticks([t / 1e6 for t in ticks], [f"{t / 1e6:.3g}" for t in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(labelsize=8)
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    below(figure, handles(arms, style), COLUMNS if columns > 2 else 2)
    return figure


def draw(axes: Axes, arm: Arm, task: Task, style: Style) -> None:
    for annealed, line, face in ((False, ":", "white"), (True, "-", style["color"])):
        scores: dict[float, list[float]] = {}
        for run in arm.runs:
            for budget in suite_of(run).budgets:
                if budget.annealed == annealed and task.key in budget.tasks:
                    value = budget.tasks[task.key].value
                    scores.setdefault(budget.tokens / 1e6, []).append(value)
        tokens = sorted(scores)
        dots = [(x, value) for x in tokens for value in scores[x]]
        look = line_look(arm, style)
        axes.plot(tokens, [fmean(scores[x]) for x in tokens], line, **look)
        axes.plot([x for x, _ in dots], [y for _, y in dots], **look | dot_look(style), mfc=face)


def line_look(arm: Arm, style: Style) -> Style:
    """The plain baseline stands out: thicker, and over the others."""
    width, order = (2.4, 3) if arm.plain else (1.1, 2)
    return {"color": style["color"], "lw": width, "zorder": order}


def dot_look(style: Style) -> Style:
    return {"ls": "", "marker": style["marker"] or "o", "ms": 3.2, "mew": 0.8}


def handles(arms: list[Arm], style: Mapping[str, Style]) -> list[Line2D]:
    lines = [
        Line2D([], [], label=arm.name, **line_look(arm, style[arm.name])
               | dot_look(style[arm.name]) | {"ls": "-"}) for arm in arms
    ]  # fmt: skip
    return [
        *lines,
        Line2D([], [], color=GREY, ls=":", marker="o", ms=4, mfc="white", label="not annealed"),
        Line2D([], [], color=GREY, marker="o", ms=4, label="annealed"),
    ]
