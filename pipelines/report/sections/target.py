"""The target task: what z alone says about the target, and generations beside reconstructions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import floor, log2, log10
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from ftmodel.designs.hinge import LN2
from ftmodel.synthetic.target import STARTS, TARGET
from pipelines.artifacts.results import ByOffset, LatentDetails
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import contrast
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import MISSING, Block, Cell, Entries, Name, Verdict, table
from pipelines.report.sections import titled
from pipelines.report.style import GREY, Style, add_legend, label_axes
from pipelines.report.wording import difference_cell, number, seeds_cell

MIN_BITS = 0.1  # about the start; with fewer, no position for half of them is given
MIN_SEQUENCES = 30  # for a mean KL at an offset
AXIS_BITS = 1e-4  # where a logarithmic axis begins at least
START_BITS = log2(STARTS)  # entropy of where a target starts


@titled("What z says about the target")
def target_latent(analysis: Analysis) -> Sequence[Block]:
    """Figures with a thin line per seed and a thick line through their means."""
    words = "What z says about the target’s start, KL around it, distance of z from fair bits,"
    figures = analysis.pictures("latent", words, latent_details, what_z_says)
    return [*table(row for arm in analysis.arms for row in start_row(arm)), *figures]


def target_figures(run: RunResults) -> dict[str, float | None]:
    """What was measured on the target task, by name; None where it could not be measured."""
    evaluation, latent = run.evaluation, run.evaluation.latent
    figures = {
        "gap_nats_per_token": evaluation.gap_nats_per_token,
        "elbo_gap_nats_per_token": evaluation.elbo_gap_nats_per_token,
        "kl_bits_per_token": evaluation.bits_per_token.kl,
    }
    found = {name: figure.mean if figure else None for name, figure in figures.items()}
    if latent is None:
        return found
    of_reconstructions = vars(latent.reconstruction).items()
    return found | {
        "start_bits": latent.start_bits,
        "start_entropy_bits": latent.start_entropy,
        "aggregate_at_least_bits": latent.aggregate_bits.at_least,
        "aggregate_at_most_bits": latent.aggregate_bits.at_most,
        **{f"reconstruction_{name}": value for name, value in of_reconstructions},
    }


def seed_values(arm: Arm, name: str) -> list[float]:
    """A figure of each seed; empty unless all of them have it."""
    values = [target_figures(run).get(name) for run in arm.runs]
    return [] if None in values else [value for value in values if value is not None]


def latent_details(arm: Arm) -> list[LatentDetails]:
    """Details of the latent for each seed of a Free Transformer on the target task, else none."""
    return [latent for run in arm.runs if (latent := run.details.latent)]


def start_row(arm: Arm) -> list[Entries]:
    """A row: how much of the start z tells, and by which position it tells half of that."""
    known, entropy = seed_values(arm, "start_bits"), seed_values(arm, "start_entropy_bits")
    if not known:
        return []
    bits = max(0.0, fmean(known))  # information is never less
    spread = (f"spread {stdev(known):.2f}",) if len(known) > 1 else ()
    half = half_known(arm) if bits > MIN_BITS else None
    return [
        {
            "arm": arm.name,
            "bits of the start known from z, at least": Cell(f"{bits:.2f}", notes=spread),
            "bits of the start in all": Cell(f"{entropy[0]:.2f}"),
            "half of the known ones by position": Cell(number(half, 0)),
        }
    ]


def half_known(arm: Arm) -> int | None:
    """The first position by which half of the start's bits are known; None if a seed lacks one."""
    curves = [latent.start_bits for latent in latent_details(arm)]
    if any(None in curve for curve in curves):
        return None
    means = [fmean(b for b in bits if b is not None) for bits in zip(*curves, strict=True)]
    return next((t for t, bits in enumerate(means) if bits >= means[-1] / 2), None)


def what_z_says(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Plot the start known from z, bits against positions; KL against the place relative to the
    target; how far z is from fair bits, given the z before it.
    """
    figure = Figure(figsize=(11, 8.6))
    grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1))
    start = figure.add_subplot(grid[0, :])
    around, unfair = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    for arm in arms:
        colour, kappa = style[arm.name]["color"], arm.run.kappa_bits or 0.0
        known = [by_position(z.start_bits) for z in latent_details(arm)]
        draw_seeds(start, known, colour)
        # of a learned prior the aggregate is not compared with fair bits
        uniform, config = seed_values(arm, "aggregate_at_least_bits"), arm.first.config
        if uniform and config and config.latent.hinge_at_token:
            paid = [min(START_BITS, kappa * (t + 1)) for t in known[0]]
            start.plot([*known[0]], paid, ":", lw=1.2, color=colour)
        if offsets := [by_offset(z.from_start) for z in latent_details(arm) if z.from_start]:
            draw_seeds(around, offsets, colour)
            if kappa:
                around.axhline(kappa, ls=":", lw=1.2, color=colour)
        if uniform:
            draw_seeds(unfair, [by_position(z.next_bits) for z in latent_details(arm)], colour)
    start.axhline(START_BITS, ls="--", lw=1.2, color=GREY)
    words = f"all there is to know: {START_BITS:.2f} bits"
    across = start.get_yaxis_transform()
    start.text(0.985, START_BITS + 0.08, words, color=GREY, ha="right", transform=across)
    start.set_ylim(min(0.0, start.get_ylim()[0]), START_BITS + 0.55)
    start.set_yticks(range(6))
    around.axvspan(-0.5, TARGET - 0.5, color=GREY, alpha=0.12, lw=0)
    around.set_yscale("log")
    lowest = max(AXIS_BITS, around.get_ylim()[0])
    around.set_ylim(bottom=10 ** floor(log10(lowest)))
    around.yaxis.set_major_locator(LogLocator())
    unfair.set_yscale("symlog", linthresh=0.1)  # 0 is what the prior has
    title = "Known about the target’s start from z at positions 0 … t"
    label_axes(start, title, "t (input position; 0 is the letter, 1 is >)", "bits, at least")
    label_axes(
        around, "KL around the target (dotted: κ)", "position, from the target’s start", "bits"
    )
    label_axes(
        unfair, "Distance of z from fair bits, given earlier z", "position", "bits, at least"
    )
    looks: dict[str, Style] = {a.name: {"lw": 2, "color": style[a.name]["color"]} for a in arms}
    if unfair.lines:
        looks["κ (t + 1): free bits’ share"] = {"ls": ":", "color": GREY}
    for axes in (around, unfair):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_visible(bool(axes.lines))
    add_legend(figure, looks, 5)
    return figure


def by_position(values: list[float | None]) -> dict[int, float]:
    return {t: value for t, value in enumerate(values) if value is not None}


def by_offset(kl: ByOffset) -> dict[int, float]:
    """KL by offset, if enough sequences have the offset."""
    offsets = zip(kl.offset, kl.kl_bits, kl.n, strict=True)
    return {offset: bits for offset, bits, n in offsets if n >= MIN_SEQUENCES}


def draw_seeds(axes: Axes, seeds: list[dict[int, float]], colour: str) -> None:
    if len(seeds) > 1:
        for line in seeds:
            axes.plot(list(line), list(line.values()), lw=0.7, alpha=0.45, color=colour)
    shared = [x for x in seeds[0] if all(x in line for line in seeds)] if seeds else []
    means = [fmean(line[x] for line in seeds) for x in shared]
    axes.plot(shared, means, lw=2, color=colour)


def mean_cell(name: str, decimals: int) -> Callable[[Arm], Cell]:
    """A function that makes the cell of a figure, by its name in figure4.csv."""
    return lambda arm: seeds_cell(seed_values(arm, name), decimals)


def valid_shares(arm: Arm) -> list[float]:
    """Share of valid sequences generated with z from the prior, of each seed."""
    return [run.evaluation.fresh.valid for run in arm.runs if run.evaluation.fresh]


def exact_nll(arm: Arm) -> Cell:
    """NLL of the process itself, nats per token, on the documents that all seeds are scored on."""
    exact = arm.figures().exact
    return Cell(f"{LN2 * exact.mean:.4f}") if exact else MISSING


def aggregate(arm: Arm) -> Cell:
    """Lower and upper bound on the aggregate posterior's KL to the prior, bits per sequence."""
    least = mean_cell("aggregate_at_least_bits", 1)(arm)
    most = mean_cell("aggregate_at_most_bits", 1)(arm)
    if most == MISSING:
        return MISSING
    if least == MISSING:
        return replace(most, value=f"≤ {most.value}")
    if not least.error:
        return Cell(f"{least} to {most}")
    return replace(least, error=f"{least.error} to {most}")


def against_posterior(arm: Arm) -> Cell:
    """Compare the valid share with z from the prior with the share with z from the posterior."""
    reconstructed = seed_values(arm, "reconstruction_valid")
    if not reconstructed:
        return MISSING
    c = contrast(arm, arm, "valid", valid_shares(arm), reconstructed)
    words = {"lower": "worse", "higher": "better"}
    verdict = Verdict(words.get(c.verdict, c.verdict), c.verdict in words, reason=c.words)
    return replace(difference_cell(c), verdict=verdict)


def sequence_kl(arm: Arm) -> Cell:
    """Mean KL of a sequence's z, which bounds the aggregate's; over sequences and seeds."""
    kl, evaluation = arm.figures().kl, arm.first.evaluation
    return Cell(f"{kl.mean * evaluation.tokens / evaluation.documents:.1f}") if kl else MISSING


ROWS: dict[Name | str, Callable[[Arm], Cell]] = {
    "seeds": lambda arm: Cell(str(len(arm.runs))),
    "exact NLL of the process, nats/token": exact_nll,
    "NLL or filtering bound − exact, nats/token": mean_cell("gap_nats_per_token", 4),
    "ELBO bound − exact, nats/token": mean_cell("elbo_gap_nats_per_token", 4),
    "KL, bits/token": mean_cell("kl_bits_per_token", 4),
    "start known from z, at least, bits": mean_cell("start_bits", 2),
    "aggregate posterior from the prior, bits/sequence": aggregate,
    "prior generations: valid": lambda arm: seeds_cell(valid_shares(arm), 3),
    "posterior reconstructions: valid": mean_cell("reconstruction_valid", 3),
    Name("distance of targets, characters", below=True): mean_cell("reconstruction_distance", 1),
    Name("overlap of noise", below=True): mean_cell("reconstruction_noise", 2),
    "prior generations − posterior reconstructions": against_posterior,
    "mean KL of a single sequence’s z, bits": sequence_kl,
}


@titled("Generations beside reconstructions")
def target_reconstruction(analysis: Analysis) -> Sequence[Block]:
    """A column for each arm, the baselines among them, and a row for each measurement."""
    arms = [arm for arm in analysis.arms if arm.first.on_target]
    if not any(map(latent_details, arms)):
        return []
    return table({"": name, **{arm.name: cell(arm) for arm in arms}} for name, cell in ROWS.items())
