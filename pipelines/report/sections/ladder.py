"""What z costs and is worth as models grow: tax, use of z and recovery against size."""

from functools import partial
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from ftmodel.analysis.trend import Interval, Trend, log_linear, power_law
from pipelines.artifacts.run_results import fraction
from pipelines.compare.ladder import Ladder, Metric, Rung, ladders
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section, Table
from pipelines.report.style import COLOURS, GREY, below, plain
from pipelines.report.wording import signed

TARGET = 124_000_000  # parameters to which the line is drawn
PUBLISHED = (0.19, 0.05)  # tax and error of a public replication at 124 M, nats per token
PUBLISHED_LABEL = "public replication: 0.19 ± 0.05, by a loose bound"
HEAD = ["model", "parameters", "tokens per parameter", "κ", "tax", "tax over the larger baseline",
        "use of z", "recovery"]  # fmt: skip
AGAINST = {False: "the baseline", True: "the larger baseline"}


def section(analysis: Analysis) -> Section | None:
    by_data = ladders(analysis.arms)
    if not by_data:
        return None
    rows = [row for ladder in by_data for row in rows_of(ladder)]
    sentences = []
    for ladder in by_data:
        where = f" on {ladder.data}" if len(by_data) > 1 else ""
        sentences += [*reservations(ladder, where), *predictions(ladder, where)]
    alt = "Tax, use of z and recovery against parameters, the tax with a line drawn to 124 million"
    figures = {f"ladder_{each.data}": (draw(each), f"{alt}, on {each.data}") for each in by_data}
    return Section("ladder", "Tax by model size", sentences, [HEAD, *rows], figures)


def tax_of(kappa: float, larger: bool) -> Metric:
    return partial(Rung.taxes, kappa=kappa, larger=larger)


def trend(ladder: Ladder, kappa: float, larger: bool, power: bool = False) -> Trend | None:
    """Of the tax, means over seeds."""
    points = ladder.points(tax_of(kappa, larger))
    fit = power_law if power else log_linear
    return fit([size for size, _ in points], [fmean(seeds) for _, seeds in points])


def rows_of(ladder: Ladder) -> Table:
    return [
        [
            rung.baseline.run.model,
            f"{rung.parameters:,}",
            f"{rung.tokens_per_parameter:.2f}",
            fraction(kappa),
            *(cell(rung.taxes(kappa, larger)) for larger in AGAINST),
            cell(rung.use_of_z(kappa)),
            cell(rung.recovery(kappa), decimals=2),
        ]
        for rung in ladder.rungs
        for kappa in ladder.kappas
    ]


def cell(seeds: list[float] | None, decimals: int = 4) -> str:
    """Their mean and, of several, the range."""
    if not seeds:
        return "–"
    low, mean, high = (f"{f(seeds):.{decimals}f}" for f in (min, fmean, max))
    return (f"{mean} ({low} to {high})" if len(seeds) > 1 else mean).replace("-", "−")


def reservations(ladder: Ladder, where: str) -> list[str]:
    """How far 124 M lies beyond the sizes, and whether the decoders read z."""
    uses = [rung.uses[kappa] for rung in ladder.rungs for kappa in ladder.kappas if kappa]
    ignored = sum(use.ignored for use in uses)
    sentences = [
        f"124 M is {TARGET / ladder.rungs[-1].parameters:.3g} times the largest size{where}."
    ]
    if ignored:
        sentences.append(
            f"z is ignored by {ignored} of {len(uses)} arms with κ above 0{where}: their tax is "
            "that of a latent which is not read."
        )
    return sentences


def predictions(ladder: Ladder, where: str) -> list[str]:
    """The tax at 124 M by each line, with its interval."""
    sentences = []
    for larger, name in AGAINST.items():
        for kappa in ladder.kappas:
            if not (line := trend(ladder, kappa, larger)):
                continue
            law = trend(ladder, kappa, larger, power=True)
            other = f"; by a power law {format_factor(law.at(TARGET))}" if law else ""
            there = format_interval(line.at(TARGET))
            sentences.append(
                f"Tax of κ = {fraction(kappa)} over {name}{where}: {signed(line.per_tenfold)} nats "
                f"per token for tenfold parameters; at 124 M {there} by the line{other}."
            )
    return sentences


def format_interval(interval: Interval) -> str:
    low, high = signed(interval.low), signed(interval.high)
    return f"{signed(interval.mean)} (95 %: {low} to {high})"


def format_factor(interval: Interval) -> str:
    """Of a power law, whose ends are its mean divided and multiplied by one factor."""
    factor = interval.high / interval.mean
    width = f"{factor:.3g}" if factor < 1000 else "more than 1000"
    return f"{signed(interval.mean)} (95 %: a factor of {width} either way)"


def draw(ladder: Ladder) -> Figure:
    """Seeds are dots; a line goes through the means, fitted where it is the tax."""
    colours = dict(zip(ladder.kappas, COLOURS[1:], strict=False))
    figure = Figure(figsize=(11, 8.4))
    (tax, larger), (use, recovery) = figure.subplots(2, 2)
    for axes, flag in ((tax, False), (larger, True)):
        draw_taxes(axes, ladder, flag, colours)
        plain(axes, f"Tax: bound − NLL of {AGAINST[flag]}", "parameters", "nats per token")
    for kappa, colour in colours.items():
        draw_means(use, ladder, partial(Rung.use_of_z, kappa=kappa), colour)
        draw_means(recovery, ladder, partial(Rung.recovery, kappa=kappa), colour)
    plain(use, "Use of z", "parameters", "nats per token")
    plain(recovery, "Recovery: share of the KL that comes back", "parameters", "")
    sizes = [rung.parameters for rung in ladder.rungs]
    for axes, ticks in ((tax, [1e6, 1e7, 1e8]), (larger, [1e6, 1e7, 1e8]), (use, sizes),
                        (recovery, sizes)):  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick / 1e6:.3g} M" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.axhline(0, lw=0.8, color=GREY)
    handles = [
        Line2D([], [], color=colour, marker="o", ms=4, label=f"κ = {fraction(kappa)}")
        for kappa, colour in colours.items()
    ]
    handles.append(Line2D([], [], color="black", marker="D", ls="", label=PUBLISHED_LABEL))
    below(figure, handles, 4)
    return figure


def draw_means(axes: Axes, ladder: Ladder, metric: Metric, colour: str) -> None:
    points = ladder.points(metric)
    draw_seeds(axes, points, colour)
    axes.plot([x for x, _ in points], [fmean(seeds) for _, seeds in points], color=colour)


def draw_seeds(axes: Axes, points: list[tuple[int, list[float]]], colour: str) -> None:
    for size, seeds in points:
        axes.plot([size] * len(seeds), seeds, "o", ms=4, color=colour, alpha=0.6)


def draw_taxes(axes: Axes, ladder: Ladder, larger: bool, colours: dict[float, str]) -> None:
    """With each κ's line to 124 M in the band where another size is expected, and the published
    figure, which no line is fitted to. Where the band is much wider than all this, it is cut.
    """
    value, error = PUBLISHED
    heights = [0.0, value - error, value + error]
    sizes = np.geomspace(ladder.rungs[0].parameters, TARGET, 60)
    for kappa, colour in colours.items():
        points = ladder.points(tax_of(kappa, larger))
        draw_seeds(axes, points, colour)
        heights += [tax for _, seeds in points for tax in seeds]
        if line := trend(ladder, kappa, larger):
            bands = [line.at(size) for size in sizes]
            heights += [bands[0].mean, bands[-1].mean]
            axes.plot(sizes, [band.mean for band in bands], color=colour, lw=1.4)
            low, high = [band.low for band in bands], [band.high for band in bands]
            axes.fill_between(sizes, low, high, color=colour, alpha=0.1, lw=0)
    axes.errorbar([TARGET], [value], [error], fmt="D", ms=5, color="black", capsize=3)
    height = max(heights) - min(heights)
    axes.set_ylim(min(heights) - height / 2, max(heights) + height / 2)
