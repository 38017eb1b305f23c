"""What z says of the target, drawn: a thin line a seed, a thick one through their means."""

from collections.abc import Mapping
from math import floor, log2, log10
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ftmodel.synthetic.target_task import STARTS, TARGET
from pipelines.report.arms import Arm
from pipelines.report.plots import GREY, Style
from pipelines.report.sections.arm_plots import below, plain

START_BITS = log2(STARTS)  # entropy of where a target starts
ENOUGH = 30  # sequences, for a mean KL at an offset
FLOOR = 1e-4  # bits, on a logarithmic axis

Line = dict[int, float]


def what_z_says(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Of Free Transformers whose details have "latent": the start known from z, bits against
    positions; KL against the place relative to the target; how far z is from fair bits,
    given the z before it.
    """
    figure = Figure(figsize=(11, 8.6))
    grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1))
    start = figure.add_subplot(grid[0, :])
    around, unfair = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    for arm in arms:
        colour, kappa = style[arm.name]["color"], arm.run.kappa_bits or 0.0
        known = lines(arm, "start_bits")
        draw(start, known, colour)
        paid = {t: min(START_BITS, kappa * (t + 1)) for t in (known[0] if known else ())}
        start.plot(list(paid), list(paid.values()), ":", lw=1.2, color=colour)
        draw(around, from_start(arm), colour)
        if kappa:
            around.axhline(kappa, ls=":", lw=1.2, color=colour)
        draw(unfair, lines(arm, "next_bits"), colour)
    start.axhline(START_BITS, ls="--", lw=1.2, color=GREY)
    words = f"all there is to know: {START_BITS:.2f} bits"
    start.text(0.985, START_BITS + 0.08, words, color=GREY, ha="right",
               transform=start.get_yaxis_transform())  # fmt: skip
    start.set_ylim(min(0.0, start.get_ylim()[0]), START_BITS + 0.55)
    start.set_yticks(range(6))
    around.axvspan(-0.5, TARGET - 0.5, color=GREY, alpha=0.12, lw=0)
    decades(around)
    unfair.set_yscale("symlog", linthresh=0.1)  # 0 is what the prior has
    plain_ticks(unfair)
    plain(
        start,
        "Known of the target’s start from z of positions 0 … t",
        "t (input position; 0 is the letter, 1 is >)",
        "bits, at least",
    )
    plain(around, "KL around the target (dotted: κ)", "position, from the target’s start", "bits")
    plain(unfair, "z from fair bits, the z before it known", "position", "bits, at least")
    handles = [Line2D([], [], lw=2, color=style[arm.name]["color"], label=arm.name) for arm in arms]
    handles.append(Line2D([], [], ls=":", color=GREY, label="κ (t + 1): free bits’ share"))
    below(figure, handles, 5)
    return figure


def lines(arm: Arm, key: str) -> list[Line]:
    """A figure of every position, of each seed that has it."""
    found = [one.details["latent"].get(key) for one in arm.runs]
    return [
        {t: value for t, value in enumerate(values) if value is not None}
        for values in found
        if values
    ]


def from_start(arm: Arm) -> list[Line]:
    """KL by offset, of each seed, where enough sequences have the offset."""
    found = [one.details["latent"].get("from_start") for one in arm.runs]
    return [
        {
            offset: kl
            for offset, kl, n in zip(each["offset"], each["kl_bits"], each["n"], strict=True)
            if n >= ENOUGH and kl is not None
        }
        for each in found
        if each
    ]


def draw(axes: Axes, seeds: list[Line], colour: str) -> None:
    if len(seeds) > 1:
        for line in seeds:
            axes.plot(list(line), list(line.values()), lw=0.7, alpha=0.45, color=colour)
    shared = [x for x in seeds[0] if all(x in line for line in seeds)] if seeds else []
    means = [fmean(line[x] for line in seeds) for x in shared]
    axes.plot(shared, means, lw=2, color=colour)


def decades(axes: Axes) -> None:
    """A logarithmic axis that begins at a power of ten."""
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(FLOOR, 10 ** floor(log10(max(FLOOR, axes.get_ylim()[0])))))
    axes.yaxis.set_major_locator(LogLocator())
    plain_ticks(axes)


def plain_ticks(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
