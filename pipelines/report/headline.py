"""The picture of the first screen: each arm's bound beside its baseline's."""

from math import ceil, isnan, log10
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm, baselines
from pipelines.compare.comparison import NOT_DECIDED, Comparison
from pipelines.report.analysis import Analysis
from pipelines.report.style import COLOURS, GREY, Style, below, plain
from pipelines.report.verdicts import find
from pipelines.report.wording import signed

LOOKS = {  # by verdict: colour, and what stands beside the difference
    "lower": (COLOURS[1], "better"),
    "no difference": (GREY, "no difference"),
    "higher": (COLOURS[2], "no gain"),
    "not known": (GREY, "error not known"),
    "loose": (GREY, NOT_DECIDED),
}
ROW_INCHES = 0.36
MAX_THRESHOLDS = 100  # that a linear axis reaches
BOUND, BAR, SEED = (
    "NLL of a baseline, filtering bound of a Free Transformer",
    "a difference counts if its bar does not reach 0",
    "a seed",
)
LEGEND: dict[str, Style] = {
    BOUND: {"color": GREY, "marker": "D", "ms": 7, "ls": ""},
    BAR: {"color": GREY, "lw": 1.6, "marker": "|", "ms": 7},
    SEED: {"color": GREY, "marker": "o", "ms": 4.5, "mfc": "white", "ls": ""},
}


def picture(analysis: Analysis) -> Figure | None:
    """Each arm's bound minus its baseline's, a panel for each family that has both; None if there
    is none.
    """
    panels = []
    for family in analysis.families:
        found = [find(analysis.comparisons, arm, plain=True) for arm in family]
        if compared := [comparison for comparison in found if comparison]:
            panels.append((analysis.family_name(family), baselines(family)[0], compared))
    if not panels:
        return None
    heights = [ROW_INCHES * (len(compared) + 1) + 0.8 for *_, compared in panels]
    figure = Figure(figsize=(10, sum(heights) + 0.6))
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    seeds = 0
    for axes, (name, baseline, compared) in zip(grid, panels, strict=True):
        draw_family(axes, name, baseline, compared)
        seeds = max(seeds, *(len(arm.runs) for c in compared for arm in (c.arm, c.other)))
    below(figure, {k: look for k, look in LEGEND.items() if seeds > 1 or k != SEED}, 2)
    return figure


def draw_family(axes: Axes, name: str, baseline: Arm, comparisons: list[Comparison]) -> None:
    """Draw the baseline on top, at 0; a difference counts if its bar does not reach 0."""
    unit, zero = UNITS[comparisons[0].unit], baseline.bound().mean
    draw_arm(axes, 0, baseline, zero, COLOURS[0])
    axes.axvline(0, lw=1.2, color=COLOURS[0])
    for row, comparison in enumerate(comparisons, start=1):
        colour, words = LOOKS["loose" if comparison.may_be_loose else comparison.verdict]
        draw_arm(axes, row, comparison.arm, zero, colour, comparison.threshold)
        axes.text(
            1.015,
            row,
            f"{signed(comparison.mean)}{comparison.convergence}  {words}",
            color=colour,
            va="center",
            fontsize=10,
            transform=axes.get_yaxis_transform(),
        )
    arms = [baseline, *(comparison.arm for comparison in comparisons)]
    title = f"{name}: held-out bound minus that of {baseline.name} ({zero:.4f} {unit})"
    scale = ""
    thresholds = [c.threshold for c in comparisons if c.threshold > 0]
    furthest = max(abs(c.mean) for c in comparisons)
    if len(thresholds) == len(arms) - 1 and furthest >= MAX_THRESHOLDS * min(thresholds):
        scale = " (logarithmic beyond the innermost ticks)"
        axes.set_xscale("symlog", linthresh=10 ** ceil(log10(min(thresholds))))
        axes.xaxis.set_major_formatter("{x:g}")
    plain(axes, fill(title, 80), f"← lower is better; difference in {unit}{scale}", "")
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_yticks(range(len(arms)), map(label, arms))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)


def draw_arm(
    axes: Axes, row: int, arm: Arm, zero: float, colour: str, threshold: float | None = None
) -> None:
    """Draw the mean, its bar and the seeds."""
    known = threshold is None or not isnan(threshold)
    axes.errorbar(
        arm.bound().mean - zero,
        row,
        xerr=threshold if known else None,
        fmt="D",
        ms=7,
        lw=1.6,
        capsize=3,
        color=colour,
        mfc=colour if known else "white",
        zorder=3,
    )
    if len(arm.runs) > 1:
        seeds = [bound - zero for bound in arm.bounds()]
        axes.plot(seeds, [row] * len(seeds), "o", ms=4.5, color=colour, mfc="white", zorder=4)


def label(arm: Arm) -> str:
    kind = arm.kind.removeprefix("baseline").strip()
    what = kind if arm.baseline else f"κ = {arm.first.kappa}"
    return arm.name + f" ({what})" * bool(what) + f", {arm.collapse}" * bool(arm.collapse)
