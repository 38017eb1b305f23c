"""What z says of the target, on its own: a thin line per seed, a thick one through their means."""

from collections.abc import Callable, Mapping
from math import floor, log2, log10
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ftmodel.designs.design import LatentDesign
from ftmodel.synthetic.target_task import STARTS, TARGET
from pipelines.artifacts.results import LatentDetails, LatentFigures
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, Table, explained
from pipelines.report.style import GREY, Style, below, plain

LITTLE = 0.1  # bits: of less, no half is told
START_BITS = log2(STARTS)  # entropy of where a target starts
ENOUGH = 30  # sequences, for a mean KL at an offset
FLOOR = 1e-4  # bits, on a logarithmic axis
Pick = Callable[[LatentFigures], float | None]
COLUMNS: dict[str, Pick] = {  # of figure4.csv
    "start_bits": lambda z: z.start_bits,
    "start_entropy_bits": lambda z: z.start_entropy,
    "aggregate_at_least_bits": lambda z: z.aggregate_bits.at_least,
    "aggregate_at_most_bits": lambda z: z.aggregate_bits.at_most,
    "reconstruction_valid": lambda z: z.reconstruction.valid,
    "reconstruction_distance": lambda z: z.reconstruction.distance,
    "reconstruction_noise": lambda z: z.reconstruction.noise,
}
Line = dict[int, float]


TEXT = """\
How much z alone says of the target: z is drawn from the encoder for fresh sequences of the
process. Top: bits of the target’s start known from z of the input positions 0 to t, without
decoder and text. It is a lower bound: z may say more in a way that the probe cannot read. Dotted
is κ (t + 1), the most that free bits alone can have paid for; there is no such line for an arm
whose free bits may all be spent at one token, nor under a learned prior. Bottom left: of arms
with one z per token, the KL by position relative to the target’s first character; the target is
shaded. Bottom right: how far the z of a position is from fair bits for a reader who knows the z
before it, a lower bound, too; of a learned prior it is not shown. Thin lines are seeds, thick
ones their means."""


def section(analysis: Analysis) -> Section | None:
    figures, rows = [], list[list[str]]()
    for data, group in analysis.by_data.items():
        if arms := [
            arm for arm in explained_arms(group) if all(r.details.latent for r in arm.runs)
        ]:
            alt = (
                f"The target’s start as known from z, KL around it, and z from fair bits, on {data}"
            )
            figures.append(Picture(f"latent_{data}", what_z_says(arms, analysis.style), alt))
            rows += [row for arm in arms for row in start_row(arm)]
    head = ["arm", "bits of the start known from z, at least", "of", "half of them by position"]
    blocks = [explained(TEXT, "the-latent-probe"), *[Table(head, rows)] * bool(rows), *figures]
    return Section("target_latent", "What z says of the target", blocks) if figures else None


def latent_columns(run: RunResults) -> dict[str, float | None]:
    """What was measured of z, by name; None where it could not be measured."""
    latent = run.evaluation.latent
    return {name: pick(latent) for name, pick in COLUMNS.items()} if latent else {}


def explained_arms(arms: list[Arm]) -> list[Arm]:
    """The Free Transformers of which all seeds were asked what z says of the target."""
    return [arm for arm in arms if all(run.evaluation.latent for run in arm.runs)]


def over(arm: Arm, pick: Pick) -> list[float]:
    """A figure of z of each seed; empty unless all of them have it."""
    latents = [run.evaluation.latent for run in arm.runs]
    present = [value for z in latents if z and (value := pick(z)) is not None]
    return present if len(present) == len(arm.runs) else []


def start_row(arm: Arm) -> list[list[str]]:
    """How much of the start z tells, and by which position it tells half of that."""
    known, entropy = over(arm, lambda z: z.start_bits), over(arm, lambda z: z.start_entropy)
    if not known or not entropy:
        return []
    bits = max(0.0, fmean(known))  # information is never less
    spread = f", spread {stdev(known):.2f}" if len(known) > 1 else ""
    half = half_known(arm) if bits > LITTLE else None
    return [
        [arm.name, f"{bits:.2f}{spread}", f"{entropy[0]:.2f}", "–" if half is None else str(half)]
    ]


def half_known(arm: Arm) -> int | None:
    """The first position by which half of what all z tell of the start is known, by the mean over
    seeds; None if some seed lacks a figure.
    """
    curves = [latent.start_bits for latent in details(arm)]
    if len(curves) < len(arm.runs) or any(None in curve for curve in curves):
        return None
    means = [fmean(b for b in bits if b is not None) for bits in zip(*curves, strict=True)]
    return next((t for t, bits in enumerate(means) if bits >= means[-1] / 2), None)


def kappa_at_each_token(design: LatentDesign) -> bool:
    """Whether free bits are no more than κ at any position, at least in the mean over rows."""
    return not design.shared_codes and design.hinge_at_position


def what_z_says(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Of Free Transformers that were asked: the start known from z, bits against
    positions; KL against the place relative to the target; how far z is from fair bits,
    given the z before it.
    """
    figure = Figure(figsize=(11, 8.6))
    grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1))
    start = figure.add_subplot(grid[0, :])
    around, unfair = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    for arm in arms:
        colour, kappa = style[arm.name]["color"], arm.run.kappa_bits or 0.0
        known = by_position(arm, lambda z: z.start_bits)
        draw(start, known, colour)
        paid = {t: min(START_BITS, kappa * (t + 1)) for t in (known[0] if known else ())}
        # of a learned prior the aggregate is not compared with fair bits
        uniform = over(arm, lambda z: z.aggregate_bits.at_least)
        config = arm.first.config
        if uniform and config and kappa_at_each_token(config.latent):
            start.plot(list(paid), list(paid.values()), ":", lw=1.2, color=colour)
        if offsets := from_start(arm):
            draw(around, offsets, colour)
            if kappa:
                around.axhline(kappa, ls=":", lw=1.2, color=colour)
        if uniform:
            draw(unfair, by_position(arm, lambda z: z.next_bits), colour)
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
    if unfair.lines:
        handles.append(Line2D([], [], ls=":", color=GREY, label="κ (t + 1): free bits’ share"))
    for axes in (around, unfair):
        axes.set_visible(bool(axes.lines))
    below(figure, handles, 5)
    return figure


def details(arm: Arm) -> list[LatentDetails]:
    """Of each seed that has them."""
    return [latent for run in arm.runs if (latent := run.details.latent)]


def by_position(arm: Arm, pick: Callable[[LatentDetails], list[float | None]]) -> list[Line]:
    """A figure of every position, of each seed; empty where it was not measured."""
    return [
        {t: value for t, value in enumerate(pick(latent)) if value is not None}
        for latent in details(arm)
    ]


def from_start(arm: Arm) -> list[Line]:
    """KL by offset, of each seed, where enough sequences have the offset."""
    offsets = [by for latent in details(arm) if (by := latent.from_start)]
    return [
        {offset: kl for offset, kl, n in zip(by.offset, by.kl_bits, by.n, strict=True)
         if n >= ENOUGH}
        for by in offsets
    ]  # fmt: skip


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
