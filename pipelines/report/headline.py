"""The picture of the first screen: each arm's bound beside its baseline's."""

from math import ceil, isnan, log10
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm, baselines
from pipelines.compare.comparison import Comparison
from pipelines.report.analysis import Analysis
from pipelines.report.style import COLOURS, GREY, below, plain
from pipelines.report.verdicts import find
from pipelines.report.wording import signed

LOOKS = {  # by verdict: colour, and what stands beside the difference
    "lower": (COLOURS[1], "better"),
    "no difference": (GREY, "no difference"),
    "higher": (COLOURS[2], "no gain"),
    "not known": (GREY, "error not known"),
}
ROW = 0.36  # inches
WIDE = 100  # an axis that reaches this many thresholds is logarithmic


def picture(analysis: Analysis) -> Figure | None:
    """Each arm's bound minus its baseline's, a panel for each family that has both; None if there
    is none.
    """
    panels = [(family, plain_comparisons(family, analysis)) for family in analysis.families]
    panels = [(family, comparisons) for family, comparisons in panels if comparisons]
    if not panels:
        return None
    heights = [ROW * (len(comparisons) + 1) + 0.8 for _, comparisons in panels]
    figure = Figure(figsize=(10, sum(heights) + 0.6))
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (family, comparisons) in zip(grid, panels, strict=True):
        draw_family(axes, analysis.family_name(family), baselines(family)[0], comparisons)
    compared = [arm for _, comparisons in panels for c in comparisons for arm in (c.arm, c.other)]
    below(figure, legend(compared), 2)
    return figure


def plain_comparisons(family: list[Arm], analysis: Analysis) -> list[Comparison]:
    """Of the arms of a family with its plain baseline."""
    comparisons = [find(analysis.comparisons, arm, plain=True) for arm in family]
    return [comparison for comparison in comparisons if comparison]


def draw_family(axes: Axes, name: str, baseline: Arm, comparisons: list[Comparison]) -> None:
    """The baseline on top, at 0; bars reach as far as a difference has to exceed to count."""
    unit, zero = comparisons[0].unit, baseline.bound().mean
    draw_arm(axes, 0, baseline, zero, COLOURS[0])
    axes.axvline(0, lw=1.2, color=COLOURS[0])
    for row, comparison in enumerate(comparisons, start=1):
        colour, words = LOOKS[comparison.verdict]
        draw_arm(axes, row, comparison.arm, zero, colour, comparison.threshold)
        axes.text(1.015, row, f"{signed(comparison.mean)}  {words}", color=colour, va="center",
                  fontsize=10, transform=axes.get_yaxis_transform())  # fmt: skip
    arms = [baseline, *(comparison.arm for comparison in comparisons)]
    scale = "" if linear(comparisons) else " (logarithmic beyond the innermost ticks)"
    if scale:
        axes.set_xscale("symlog", linthresh=decade(min(c.threshold for c in comparisons)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    plain(
        axes,
        fill(
            f"{name}: held-out bound minus that of {baseline.name} ({zero:.4f} {UNITS[unit]})", 80
        ),
        f"← lower is better; difference in {UNITS[unit]}{scale}",
        "",
    )
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_yticks(range(len(arms)), map(label, arms))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)


def linear(comparisons: list[Comparison]) -> bool:
    """Whether all differences can be seen on one linear axis."""
    thresholds = [c.threshold for c in comparisons if c.threshold > 0]
    if len(thresholds) < len(comparisons):
        return True
    return max(abs(c.mean) for c in comparisons) < WIDE * min(thresholds)


def decade(value: float) -> float:
    """The power of ten at or above a number."""
    return float(10 ** ceil(log10(value)))


def draw_arm(
    axes: Axes, row: int, arm: Arm, zero: float, colour: str, threshold: float | None = None
) -> None:
    """The mean, its bar and the seeds."""
    mean = arm.bound().mean
    known = threshold is None or not isnan(threshold)
    axes.errorbar(mean - zero, row, xerr=threshold if known else None, fmt="D", ms=7, lw=1.6,
                  capsize=3, color=colour, mfc=colour if known else "white", zorder=3)  # fmt: skip
    if len(arm.runs) > 1:
        seeds = [bound - zero for bound in arm.bounds()]
        axes.plot(seeds, [row] * len(seeds), "o", ms=4.5, color=colour, mfc="white", zorder=4)


def label(arm: Arm) -> str:
    what = (
        f"κ = {arm.first.kappa}" if not arm.baseline else arm.kind.removeprefix("baseline").strip()
    )
    return (
        arm.name + (f" ({what})" if what else "") + (f", {arm.collapse}" if arm.collapsed else "")
    )


def legend(arms: list[Arm]) -> list[Line2D]:
    """Of what is drawn."""
    means = "NLL of a baseline, filtering bound of a Free Transformer"
    bar = "a difference counts if its bar does not reach 0"
    handles = [
        Line2D([], [], color=GREY, marker="D", ms=7, ls="", label=means),
        Line2D([], [], color=GREY, lw=1.6, marker="|", ms=7, label=bar),
    ]
    if any(len(arm.runs) > 1 for arm in arms):
        handles.append(Line2D([], [], color=GREY, marker="o", ms=4.5, mfc="white", ls="",
                              label="a seed"))  # fmt: skip
    return handles
