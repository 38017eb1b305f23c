"""Held-out figures against κ."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from matplotlib.figure import Figure

from pipelines.artifacts.results import UNITS, Estimate, Figures
from pipelines.artifacts.run_results import fraction
from pipelines.compare.arms import Arm, baselines
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Cell, Column, Entries, Picture, explained, table
from pipelines.report.sections import titled
from pipelines.report.style import (
    COLOURS,
    GREY,
    Style,
    add_legend,
    label_axes,
    log_places,
    seeds_and_means,
    spaced,
)
from pipelines.report.verdicts import find_comparison
from pipelines.report.wording import listed

Pick = Callable[[Figures], Estimate | None]
SERIES: dict[str, tuple[Pick, str, str]] = {  # label: figure, colour, line
    "reconstruction CE (not comparable)": (lambda figures: figures.ce, GREY, "--"),
    "filtering bound": (lambda figures: figures.filtering, COLOURS[1], "-"),
    "ELBO bound": (lambda figures: figures.elbo, COLOURS[2], "-"),
}


@titled("The bound against κ")
def kappa(analysis: Analysis) -> Sequence[Block]:
    figures, rows = [], list[Entries]()
    for family in analysis.families:
        if len({arm.run.kappa_bits for arm in family if arm.preset_design}) > 1:
            name = f"kappa_{analysis.family_name(family)}"
            alt = f"Reconstruction CE, filtering bound and ELBO against κ on {family[0].run.data}"
            figures.append(Picture(name, figures_against_kappa(family), alt))
            rows += collapse_at_large_kappa(family, analysis)
    collapse = [*explained("Collapse at large κ"), *table(rows)] if rows else []
    return [*figures, *collapse]


def collapse_at_large_kappa(family: list[Arm], analysis: Analysis) -> list[Entries]:
    """A row on whether more bits make z a copy of the text; none without a baseline."""
    free = sorted((arm for arm in family if arm.preset_design), key=kappa_of)
    steps = [*{kappa_of(arm): arm for arm in free}.values()]  # of arms of one κ, the last
    against = [c for arm in steps if (c := find_comparison(analysis.comparisons, arm, plain=True))]
    if not against:
        return []
    first, *_, last = steps
    ce = [analysis.uses[arm.name].ce.mean for arm in steps]
    worse = [c.arm.first.kappa for c in against if c.worse]
    verdict = "shown" if last.first.kappa in worse and ce[-1] < ce[0] else "not shown"
    if analysis.uses[last.name].ignored:
        verdict = f"not shown: z is ignored at κ = {last.first.kappa}"
    return [
        {
            "baseline": against[0].other.name,
            "from κ": Cell(first.first.kappa),
            "to κ": Cell(last.first.kappa),
            Column("reconstruction CE", comparable=False): direction(ce),
            "bound higher at": f"κ = {listed(worse)}" if worse else "none",
            "collapse at large κ": verdict,
        }
    ]


def kappa_of(arm: Arm) -> float:
    assert arm.run.kappa_bits is not None, f"{arm.name} is a baseline"
    return arm.run.kappa_bits


def direction(values: list[float]) -> str:
    """Whether figures rise or fall from first to last, and at every step."""
    if values[-1] == values[0]:
        return "ends where it began"
    falls = values[-1] < values[0]
    steady = all((later < earlier) == falls for earlier, later in pairwise(values))
    return ("falls" if falls else "rises") + ("" if steady else ", though not at every step")


def figures_against_kappa(family: list[Arm]) -> Figure:
    """Plot CE, filtering bound and ELBO against κ, beside baselines; right: the bound alone."""
    free = [arm for arm in family if arm.preset_design]
    places, unit = log_places({kappa_of(arm) for arm in free}), free[0].unit
    levels = dict(zip((COLOURS[0], COLOURS[4]), baselines(family), strict=False))
    figure = Figure(figsize=(11, 4.6))
    left, right = figure.subplots(1, 2)
    for axes, series in ((left, SERIES), (right, {"": SERIES["filtering bound"]})):
        for pick, colour, line in series.values():
            points: dict[float, list[float]] = {place: [] for place in places.values()}
            for arm in free:
                found = (pick(run.figures(unit)) for run in arm.runs)
                points[places[kappa_of(arm)]] += [each.mean for each in found if each]
            seeds_and_means(axes, points, colour, line)
        for colour, arm in levels.items():
            seeds = arm.bounds()
            axes.axhline(fmean(seeds), lw=1.4, color=colour)
            if len(seeds) > 1:  # a band over what they span
                axes.axhspan(min(seeds), max(seeds), color=colour, alpha=0.15, lw=0)
        ticks = spaced(places)
        axes.set_xticks([places[k] for k in ticks], [fraction(k) for k in ticks])
        axes.margins(x=0.06, y=0.12)
    label_axes(left, "What z tells, and what it costs", "κ, bits per token", UNITS[unit])
    label_axes(right, "The bound alone", "κ, bits per token", UNITS[unit])
    looks: dict[str, Style] = {
        label: {"color": colour, "ls": line, "marker": "o", "ms": 4}
        for label, (_, colour, line) in SERIES.items()
    }
    looks |= {
        f"{arm.name} ({'bound' if arm.run.random_prefix else 'NLL'})": {"color": c, "lw": 1.4}
        for c, arm in levels.items()
    }
    add_legend(figure, looks, 3)
    return figure
