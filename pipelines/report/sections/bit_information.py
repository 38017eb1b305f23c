"""What the bits of z say of the tokens of text: a curve over lags, and contexts of single bits."""

from collections.abc import Mapping
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ftmodel.analysis.bit_information import NetInformation
from pipelines.artifacts.latent_results import InformativeBit
from pipelines.artifacts.run_results import RunResults
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import (
    Block,
    Fold,
    Picture,
    Samples,
    Section,
    Table,
    Text,
    explained,
    heading,
    prose,
)
from pipelines.report.style import COLOURS, GREY, Style, below, plain

SMALL = 0.01  # bits, below which the axis is linear
ACROSS = 4  # panels beside one another
TITLE = "Information of z about a token, summed over bits"
LAG = "lag (0: the token read, 1: the one predicted)"


TEXT = """\
Mutual information, in bits, between each bit of z at a position of held-out text and the token
some positions further on, summed over the bits; z is that of the encoder, which has read all of
these tokens. Lag 0 is the token that is read at the position, lag 1 the one that is predicted
there. What documents with the z of other documents seem to have is subtracted, so a figure may
lie below 0. Bits are taken one at a time: what several say only jointly is missed, and what
several repeat is counted again. Neighbouring tokens are related, so that a bit that says
something of one token says a little of those around it. ± is one standard error over documents."""
CONTEXTS = """\
The bits with the largest KL, and where in held-out text the encoder gives them the highest and
the lowest probability of 1, at most one position per document; the token that is read there is
in brackets."""


def section(analysis: Analysis) -> Section | None:
    figures, measured = list[Block](), list[RunResults]()
    for data, group in analysis.by_data.items():
        curves = {}
        for arm in group:
            if runs := [run for run in arm.runs if run.details.persistence]:
                curves[arm.name] = [run.details.persistence for run in runs]
                measured += runs
        if curves:
            alt = f"Information of the bits of z about the token at each lag, on {data}"
            drawn = persistence(curves, analysis.style)
            figures.append(Picture(f"persistence_{data}", drawn, alt))
    if not measured:
        return None
    runs = [arm.first for arm in analysis.arms]  # one seed: bits of two have nothing in common
    folds = [
        Fold(f"{run.name}: where its bits are set", [b for bit in bits for b in contexts(bit)])
        for run in runs
        if (bits := run.details.bits)
    ]
    text = explained(TEXT, "bits-and-tokens-persistence")
    blocks = [text, table(measured), *figures, *([prose(CONTEXTS), *folds] if folds else [])]
    return Section("bit_information", "What the bits of z say of tokens", blocks)


def persistence(
    arms: Mapping[str, list[list[NetInformation]]], style: Mapping[str, Style]
) -> Figure:
    """Information about the token at each lag, a line per seed with a band of two standard errors;
    dotted, two standard deviations of what the z of other documents seem to say. More arms than
    there are colours have a panel each.
    """
    handles = [Line2D([], [], ls=":", color=GREY, label="chance: z of other documents, 2 sd")]
    if len(arms) > len(COLOURS):
        rows = ceil(len(arms) / ACROSS)
        figure = Figure(figsize=(11, 0.6 + 1.9 * rows))
        panels = figure.subplots(rows, ACROSS, sharex=True, sharey=True)
        for axes in panels.flat[len(arms) :]:
            axes.set_visible(False)
        for axes, (name, seeds) in zip(panels.flat, arms.items(), strict=False):
            draw(axes, seeds, COLOURS[1])
            plain(axes, "", "", "")
            axes.set_title(name, fontsize=9)
        title = f"{TITLE}, bits by {LAG}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    else:
        figure = Figure(figsize=(11, 4.6))
        axes = figure.subplots()
        for name, seeds in arms.items():
            draw(axes, seeds, style[name]["color"])
        plain(axes, TITLE, LAG, "bits")
        handles += [Line2D([], [], lw=2, color=style[name]["color"], label=name) for name in arms]
    below(figure, handles, 5)
    return figure


def draw(axes: Axes, seeds: list[list[NetInformation]], colour: str) -> None:
    """The curves of an arm."""
    for curve in seeds:
        lags = range(len(curve))
        low, high = ([e.bits + side * 2 * e.se for e in curve] for side in (-1, 1))
        axes.plot(lags, [e.bits for e in curve], lw=1.8, marker=".", color=colour)
        axes.fill_between(lags, low, high, alpha=0.15, lw=0, color=colour)
        axes.plot(lags, [2 * e.null_sd for e in curve], ":", lw=1, color=colour)
    axes.axhline(0, lw=0.8, color=GREY)
    axes.set_yscale("symlog", linthresh=SMALL)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1g}".replace("-", "−"))


def table(runs: list[RunResults]) -> Table:
    """A row per run: information at each lag that any of them has, and the null of the first."""
    lags = sorted({lag for run in runs for lag in run.evaluation.persistence or {}})
    head = ["run", *(f"lag {lag}" for lag in lags), "subtracted at lag 1", "its sd"]
    rows = []
    for run in runs:
        by_lag = run.evaluation.persistence or {}
        null = by_lag.get(1)
        chance = [f"{null.null_mean:.4f}", f"{null.null_sd:.4f}"] if null else ["–", "–"]
        rows.append([run.name, *(cell(by_lag.get(lag)) for lag in lags), *chance])
    return Table(head, rows)


def contexts(bit: InformativeBit) -> list[Block]:
    information = f"{cell(bit.read)} of the token read, {cell(bit.predicted)} of the one predicted"
    blocks: list[Block] = [heading(f"Bit {bit.bit}: KL {bit.kl}, information {information}")]
    for end, places in (("Highest", bit.set), ("Lowest", bit.unset)):
        blocks.append(Text(f"{end} probability of 1:"))
        for c in places:
            words = f"{c.probability:.3f} {c.before}[{c.token}]{c.after}"
            blocks.append(Samples("sample", words))
    return blocks


def cell(excess: NetInformation | None) -> str:
    """Bits ± the standard error over documents, if there is more than one."""
    if excess is None:
        return "–"
    error = "" if excess.se != excess.se else f" ± {excess.se:.4f}"
    return f"{excess.bits:.4f}{error}".replace("-", "−")
