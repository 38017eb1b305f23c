"""How much should z tell? Held-out figures against κ."""

from collections.abc import Callable
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.artifacts.results import UNITS, Estimate, Figures
from pipelines.artifacts.run_results import RunResults, fraction
from pipelines.compare.arms import Arm, baselines
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section
from pipelines.report.style import COLOURS, GREY, Scale, below, plain, scale

Pick = Callable[[Figures], Estimate | None]
SERIES: dict[str, tuple[Pick, str, str]] = {  # label: figure, colour, line
    "reconstruction CE (not comparable)": (lambda figures: figures.ce, GREY, "--"),
    "filtering bound": (lambda figures: figures.filtering, COLOURS[1], "-"),
    "ELBO bound": (lambda figures: figures.elbo, COLOURS[2], "-"),
}


def section(analysis: Analysis) -> Section | None:
    figures = {}
    for family in analysis.families:
        if len({arm.run.kappa_bits for arm in family if arm.preset_design}) > 1:
            name = f"kappa_{analysis.family_name(family)}"
            data = family[0].run.data
            alt = f"Reconstruction CE, filtering bound and ELBO against κ on {data}"
            figures[name] = (figures_against_kappa(family), alt)
    return Section("kappa", "How much should z tell?", figures=figures) if figures else None


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
