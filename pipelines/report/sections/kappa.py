"""How much should z tell? Held-out figures against κ."""

from collections.abc import Callable
from itertools import pairwise
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.artifacts.results import UNITS, Estimate, Figures
from pipelines.artifacts.run_results import RunResults, fraction
from pipelines.compare.arms import Arm, baselines
from pipelines.compare.comparison import Comparison
from pipelines.compare.use_of_z import required, uses_of_z
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import NOT_COMPARABLE, Picture, Section, Table, prose
from pipelines.report.style import COLOURS, GREY, Scale, below, plain, scale
from pipelines.report.verdicts import find
from pipelines.report.wording import listed

Pick = Callable[[Figures], Estimate | None]
SERIES: dict[str, tuple[Pick, str, str]] = {  # label: figure, colour, line
    "reconstruction CE (not comparable)": (lambda figures: figures.ce, GREY, "--"),
    "filtering bound": (lambda figures: figures.filtering, COLOURS[1], "-"),
    "ELBO bound": (lambda figures: figures.elbo, COLOURS[2], "-"),
}


TEXT = """\
Held-out figures against κ, of Free Transformers with the latent of their model’s file; a dot is
a seed, lines go through means, and baselines are level lines with a band over the range of their
seeds. The filtering bound lies above reconstruction cross-entropy (grey; no language-model loss)
by what the decoder gains from the encoder’s z, and below the ELBO by the KL that buys nothing."""
COLLAPSE = """\
Where κ is large, z may copy the text: reconstruction improves, by a z that is used, while the
bound gets worse. The paper (§ 4.4) meets this at 4 bits. An arm is worse than its baseline here
only by more than its bound may be loose."""
HEAD = ["baseline", "from κ", "to κ", "reconstruction CE" + NOT_COMPARABLE, "arms worse than it",
        "collapse at large κ"]  # fmt: skip


def section(analysis: Analysis) -> Section | None:
    figures, rows = [], list[list[str]]()
    for family in analysis.families:
        if len({arm.run.kappa_bits for arm in family if arm.preset_design}) > 1:
            name = f"kappa_{analysis.family_name(family)}"
            alt = f"Reconstruction CE, filtering bound and ELBO against κ on {family[0].run.data}"
            figures.append(Picture(name, figures_against_kappa(family), alt))
            rows += collapse_at_large_kappa(family, analysis.comparisons)
    collapse = [prose(COLLAPSE), Table(HEAD, rows)] if rows else []
    blocks = [prose(TEXT), *figures, *collapse]
    return Section("kappa", "How much should z tell?", blocks) if figures else None


def collapse_at_large_kappa(family: list[Arm], comparisons: list[Comparison]) -> list[list[str]]:
    """Whether more bits make z a copy of the text, a row; none without two κ and a baseline."""
    free = sorted((arm for arm in family if arm.preset_design), key=kappa_of)
    steps = {kappa_of(arm): arm for arm in free}  # of arms of one κ, the last
    plain = {k: c for k, arm in steps.items() if (c := find(comparisons, arm, plain=True))}
    if len(steps) < 2 or len(plain) < len(steps):
        return []
    first, *_, last = steps.values()
    ce = [required(arm.figures().ce).mean for arm in steps.values()]
    above = [k for k, c in plain.items() if c.worse]
    onset = [k for k in steps if all(later in above for later in steps if later >= k)]
    (use,) = uses_of_z([last])
    worse = "none"
    if onset:
        worse = f"from κ = {steps[onset[0]].first.kappa} on"
    elif above:
        values = listed(steps[k].first.kappa for k in above)
        worse = f"at κ = {values}, but not at the largest κ"
    verdict = "shown" if onset and ce[-1] < ce[0] else "not shown"
    if use.ignored:
        verdict = f"not shown: z is ignored at κ = {last.first.kappa}"
    baseline = next(iter(plain.values())).other.name
    return [[baseline, first.first.kappa, last.first.kappa, trend(ce), worse, verdict]]


def kappa_of(arm: Arm) -> float:
    assert arm.run.kappa_bits is not None, f"{arm.name} is a baseline"
    return arm.run.kappa_bits


def trend(values: list[float]) -> str:
    """Whether figures rise or fall from first to last, and at every step."""
    if values[-1] == values[0]:
        return "ends where it began"
    falls = values[-1] < values[0]
    steady = all((later < earlier) == falls for earlier, later in pairwise(values))
    return ("falls" if falls else "rises") + ("" if steady else ", though not at every step")


def figures_against_kappa(family: list[Arm]) -> Figure:
    """CE, filtering bound and ELBO of Free Transformers against κ, beside their baselines.

    The right panel has the bound alone, on a scale that shows what it gains or loses.
    """
    free = [arm for arm in family if arm.preset_design]
    axis = scale([arm.run.kappa_bits for arm in free], log=True)
    unit = free[0].unit
    levels = list(zip(baselines(family), (COLOURS[0], COLOURS[4]), strict=False))
    figure = Figure(figsize=(11, 4.6))
    left, right = figure.subplots(1, 2)
    for axes, series in ((left, SERIES), (right, {"": SERIES["filtering bound"]})):
        for pick, colour, line in series.values():
            draw_series(axes, free, pick, axis, colour, line)
        for arm, colour in levels:
            draw_level(axes, arm, colour)
        ticks = axis.ticks()
        axes.set_xticks([axis.places[k] for k in ticks], [fraction(k) for k in ticks])
        axes.margins(x=0.06, y=0.12)
    plain(left, "What z tells, and what it costs", "κ, bits per token", UNITS[unit])
    plain(right, "The bound alone", "κ, bits per token", UNITS[unit])
    handles = [
        Line2D([], [], color=colour, ls=line, marker="o", ms=4, label=label)
        for label, (_, colour, line) in SERIES.items()
    ] + [Line2D([], [], color=colour, lw=1.4, label=f"{arm.name} (NLL)") for arm, colour in levels]
    below(figure, handles, 3)
    return figure


def values(runs: list[RunResults], pick: Pick) -> list[float]:
    return [estimate.mean for run in runs if (estimate := pick(run.figures(run.unit)))]


def draw_series(
    axes: Axes, free: list[Arm], pick: Pick, axis: Scale, colour: str, line: str
) -> None:
    means: dict[float, list[float]] = {}
    for arm in free:
        seeds = values(arm.runs, pick)
        place = axis.places[arm.run.kappa_bits]
        axes.plot([place] * len(seeds), seeds, "o", ms=4, color=colour, alpha=0.6)
        means.setdefault(place, []).extend(seeds)
    places = sorted(means)
    axes.plot(places, [fmean(means[p]) for p in places], line, lw=1.6, color=colour)


def draw_level(axes: Axes, arm: Arm, colour: str) -> None:
    """A baseline: its mean, and a band over what its seeds span."""
    seeds = arm.bounds()
    axes.axhline(fmean(seeds), lw=1.4, color=colour)
    if len(seeds) > 1:
        axes.axhspan(min(seeds), max(seeds), color=colour, alpha=0.15, lw=0)
