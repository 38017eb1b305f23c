"""Benchmarks during training, as in Figures 5 to 7 of the paper: a small panel for each."""

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.compare.arms import Arm
from pipelines.report.benchmarks.table import Benchmarks, Task, suite_of
from pipelines.report.style import (
    ANNEALING,
    GREY,
    Style,
    below,
    dots,
    log_places,
    millions,
    panels,
    plain,
    spaced,
)

COLUMNS, TICKS = 4, 4


def with_budgets(benchmarks: Benchmarks) -> list[Arm]:
    return [arm for arm in benchmarks.arms if all(suite_of(run).budgets for run in arm.runs)]


def during_training(benchmarks: Benchmarks, style: Mapping[str, Style]) -> Figure:
    """Plot score against tokens: a dot per seed, a line through means; hollow if not annealed."""
    arms, tasks = with_budgets(benchmarks), benchmarks.tasks
    columns = min(COLUMNS, len(tasks))
    width = 11 / columns if columns > 2 else 4.4
    figure, grid = panels(len(tasks), columns, (width, 2.3), 0.9)
    runs = [run for arm in arms for run in arm.runs]
    tokens = sorted({budget.tokens for run in runs for budget in suite_of(run).budgets})
    ticks = spaced(log_places(tokens))
    ticks = ticks[::-1][:: -(-len(ticks) // TICKS)][::-1]  # with the last
    for i, (axes, task) in enumerate(zip(grid, tasks, strict=True)):
        for arm in arms:
            draw_scores(axes, arm, task, style[arm.name])
        last = i + columns >= len(tasks)  # of its column
        plain(axes, "", "tokens (million)" if last else "", "")
        axes.set_title(task.name, loc="left", fontsize=10, fontweight="bold")
        lower = "" if task.higher_is_better else " ↓"
        axes.set_title(f"{task.metric}{lower}", loc="right", fontsize=8, color=GREY)
        millions(axes, ticks)
        axes.set_xlim(0.9 * tokens[0], 1.1 * tokens[-1])
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(labelsize=8)
    looks = {arm.name: line(arm, style[arm.name]) | dots(style[arm.name], 3.2) for arm in arms}
    below(figure, looks | ANNEALING, COLUMNS if columns > 2 else 2)
    return figure


def draw_scores(axes: Axes, arm: Arm, task: Task, style: Style) -> None:
    for annealed, kind, face in ((False, ":", "white"), (True, "-", style["color"])):
        scores: dict[float, list[float]] = defaultdict(list)
        for budget in (budget for run in arm.runs for budget in suite_of(run).budgets):
            if budget.annealed == annealed and task.key in budget.tasks:
                scores[budget.tokens].append(budget.tasks[task.key].value)
        tokens, look = sorted(scores), line(arm, style)
        axes.plot(tokens, [fmean(scores[x]) for x in tokens], kind, **look)
        each = [(x, score) for x in tokens for score in scores[x]]
        seeds = look | dots(style, 3.2) | {"mew": 0.8, "mfc": face, "ls": ""}
        axes.plot([x for x, _ in each], [score for _, score in each], **seeds)


def line(arm: Arm, style: Style) -> Style:
    """An arm's line: the plain baseline's is thicker, and over the others."""
    width, order = (2.4, 3) if arm.plain else (1.1, 2)
    return {"color": style["color"], "lw": width, "zorder": order}
