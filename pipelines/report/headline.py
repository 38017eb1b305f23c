"""The first screen: is a Free Transformer better than its baseline? One sentence for each data set,
and one picture.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.artifacts.results import UNITS
from pipelines.report.analysis import Analysis
from pipelines.report.arms import Arm, baselines
from pipelines.report.comparison import Comparison
from pipelines.report.style import COLOURS, GREY, below, plain
from pipelines.report.verdicts import find, gain_of
from pipelines.report.wording import listed, signed

LOOKS = {  # by verdict: colour, and what stands beside the difference
    "lower": (COLOURS[1], "better"),
    "no difference": (GREY, "no difference"),
    "higher": (COLOURS[2], "no gain"),
    "not known": (GREY, "error not known"),
}
ROW = 0.36  # inches


def answers(analysis: Analysis) -> dict[str, str]:
    """A sentence for each data set."""
    return {data: answer(data, analysis) for data in analysis.by_data}


def answer(data: str, analysis: Analysis) -> str:
    arms, comparisons = analysis.by_data[data], analysis.compared_on(data)
    against_plain = [c for c in comparisons if not c.arm.baseline and c.other.plain]
    if all(arm.baseline for arm in arms):
        return "Only baselines were trained: there is no Free Transformer to compare with."
    if not against_plain:
        return "No baseline of the same model and token budget was trained to compare with."
    by_baseline: dict[str, list[Comparison]] = {}
    for comparison in against_plain:
        by_baseline.setdefault(comparison.other.name, []).append(comparison)
    clauses = [
        clause for group in by_baseline.values() for clause in clauses_on(group, comparisons)
    ]
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}. {seeds_in_words(against_plain)}"


def clauses_on(group: list[Comparison], comparisons: list[Comparison]) -> list[str]:
    """What Free Transformers came to against one baseline, gains first."""
    unit, baseline = UNITS[group[0].unit], group[0].other.name
    by_verdict: dict[str, list[Comparison]] = {}
    for comparison in group:
        by_verdict.setdefault(comparison.verdict, []).append(comparison)
    clauses = []
    if better := by_verdict.get("lower"):
        verb = "predicts" if len(better) == 1 else "predict"
        clauses.append(
            f"{names(better)} {verb} held-out data better than {baseline}, by {sizes(better)} "
            f"{unit}{beyond_blocks(better, comparisons)}"
        )
    if alike := by_verdict.get("no difference"):
        clauses.append(f"no difference from {baseline} was measured for {names(alike)}")
    if worse := by_verdict.get("higher"):
        shows = (
            "shows no gain: its bound is" if len(worse) == 1 else "show no gain: their bounds are"
        )
        clauses.append(f"{names(worse)} {shows} {sizes(worse)} {unit} above {baseline}")
    if unknown := by_verdict.get("not known"):
        clauses.append(f"nothing is claimed of {names(unknown)}, since errors are not known")
    if "lower" not in by_verdict:
        clauses[0] = f"no Free Transformer is shown to be better than {baseline}: {clauses[0]}"
    return clauses


def names(comparisons: list[Comparison]) -> str:
    return listed(c.arm.name for c in comparisons)


def sizes(comparisons: list[Comparison]) -> str:
    """The size of a difference, or the smallest and the largest."""
    ends = sorted(f"{abs(c.mean):.4f}" for c in comparisons)
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def beyond_blocks(better: list[Comparison], comparisons: list[Comparison]) -> str:
    """Whether the gain is more than that of a larger baseline; empty where the arms differ in it."""
    gains = [gain_of(c, comparisons) for c in better]
    kinds = {(gain[0], gain[1].other.name) for gain in gains if gain}
    if len(kinds) != 1 or None in gains:
        return ""
    ((kind, control),) = kinds
    return {
        "more": f", and better than {control}, which has more blocks and no latent",
        "same": f", but {control} gains too, with more blocks and no latent",
        "open": f", but not told apart from {control}, which has more blocks and no latent",
    }[kind]


def seeds_in_words(comparisons: list[Comparison]) -> str:
    numbers = sorted({len(arm.runs) for c in comparisons for arm in (c.arm, c.other)})
    if numbers == [1]:
        return "With a single seed per arm this holds for these very runs: another seed may differ."
    seeds = " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
    return f"{seeds} seeds per arm; a difference counts beyond the spread of seeds and documents."


def picture(analysis: Analysis) -> Figure | None:
    """Each arm's bound minus its baseline's, a panel for each family that has both; None if there
    is none.
    """
    panels = [(family, plain_comparisons(family, analysis)) for family in analysis.families]
    panels = [(family, comparisons) for family, comparisons in panels if comparisons]
    if not panels:
        return None
    heights = [ROW * (len(comparisons) + 1) + 0.75 for _, comparisons in panels]
    figure = Figure(figsize=(9.5, sum(heights) + 0.55))
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (family, comparisons) in zip(grid, panels, strict=True):
        draw_family(axes, analysis.family_name(family), baselines(family)[0], comparisons)
    handles = [
        Line2D([], [], color=GREY, marker="D", ms=7, ls="-", lw=1.6,
               label="mean over seeds; it counts if its bar does not reach 0"),
        Line2D([], [], color=GREY, marker="o", ms=4, ls="", alpha=0.55, label="a seed"),
    ]  # fmt: skip
    below(figure, handles, 2)
    return figure


def plain_comparisons(family: list[Arm], analysis: Analysis) -> list[Comparison]:
    """Of the arms of a family with its plain baseline."""
    found = [find(analysis.comparisons, arm, plain=True) for arm in family]
    return [comparison for comparison in found if comparison]


def draw_family(axes: Axes, name: str, baseline: Arm, comparisons: list[Comparison]) -> None:
    """The baseline on top, at 0; bars reach as far as a difference has to exceed."""
    unit = comparisons[0].unit
    zero = baseline.bound(unit)
    labels = [f"{baseline.name}"]
    draw_seeds(axes, 0, baseline.bounds(unit), zero.mean, COLOURS[0])
    axes.plot(0, 0, "D", ms=7, color=COLOURS[0], zorder=3)
    axes.axvline(0, lw=1.2, color=COLOURS[0])
    side = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9.5}
    axes.text(1.015, 0, f"{zero.mean:.4f}", color=COLOURS[0], **side)
    for row, comparison in enumerate(comparisons, start=1):
        arm, (colour, word) = comparison.arm, LOOKS[comparison.verdict]
        labels.append(arm_label(arm))
        draw_seeds(axes, row, arm.bounds(unit), zero.mean, colour)
        known = comparison.threshold == comparison.threshold
        bar = comparison.threshold if known else None
        axes.errorbar(comparison.mean, row, xerr=bar, fmt="D", ms=7, lw=1.6, capsize=3,
                      color=colour, mfc=colour if known else "white", zorder=3)  # fmt: skip
        axes.text(1.015, row, f"{signed(comparison.mean)}  {word}", color=colour, **side)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    plain(axes, f"{name}: held-out bound against {baseline.name}",
          f"← lower is better        difference in {UNITS[unit]}", "")  # fmt: skip
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)


def arm_label(arm: Arm) -> str:
    kappa = "" if arm.baseline else f" (κ = {arm.first.kappa})"
    return f"{arm.name}{kappa}{', ' + arm.collapse if arm.collapsed else ''}"


def draw_seeds(axes: Axes, row: int, bounds: list[float], zero: float, colour: str) -> None:
    if len(bounds) > 1:
        seeds = [bound - zero for bound in bounds]
        axes.plot(seeds, [row] * len(seeds), "o", ms=4, alpha=0.55, color=colour)
