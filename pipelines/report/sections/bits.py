"""The bits of z: how much each carries, and what they say about the tokens of text."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import full, nan

from ftmodel.analysis.information import NetInformation
from pipelines.artifacts.results import Estimate, InformativeBit
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import (
    Block,
    Cell,
    Picture,
    Samples,
    Table,
    Text,
    explained,
    fold,
    heading,
    table,
)
from pipelines.report.sections import titled
from pipelines.report.style import COLOURS, GREY, Style, add_legend, label_axes, panels
from pipelines.report.wording import estimate, number

LINEAR_BITS = 0.01  # below which the axis is linear
TITLE = "Information of z about a token, summed over bits"
LAG = "lag (0: the token read, 1: the one predicted)"


@titled("How much each latent bit carries")
def latent_bits(analysis: Analysis) -> Sequence[Block]:
    bits = {run.name: run.details.kl_per_bit for run in analysis.runs if not run.baseline}
    words = "KL of each latent bit, bits per token"
    return [Picture("kl_per_bit", heat_map(bits), words)] if bits else []


def heat_map(runs: Mapping[str, list[float]]) -> Figure:
    """Heat map of the KL, bits per token, of each latent bit; runs may differ in H."""
    width = max(map(len, runs.values()))
    figure = Figure(figsize=(11, 2 + 0.36 * len(runs)))
    axes = figure.subplots()
    largest = max(map(max, runs.values()))
    shade = LogNorm(1e-3, max(1, largest), clip=True)  # 1 is the most under a uniform prior
    size = min(9, 170 / width)  # points, so that 24 bits fit
    grid = full((len(runs), width), nan)
    for row, values in enumerate(runs.values()):
        grid[row, : len(values)] = values
        for bit, value in enumerate(values):
            colour = "white" if shade(value) > 0.6 else "#1f2937"
            axes.text(bit, row, f"{value:.3f}", ha="center", va="center", size=size, color=colour)
    image = axes.imshow(grid, aspect="auto", cmap="Blues", norm=shade)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.xaxis.set_major_locator(MaxNLocator(min(width, 16), integer=True))
    axes.set_xlabel("latent bit (0 … H − 1)")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, format="%g")
    bar.set_label("KL, bits per token")
    figure.tight_layout()
    return figure


@titled("What the bits of z say about tokens")
def bit_information(analysis: Analysis) -> Sequence[Block]:
    words = "Information of the bits of z about the token at each lag,"
    figures = analysis.pictures("persistence", words, recorded, persistence)
    runs = [run for arm in analysis.arms for run in recorded(arm)]
    firsts = [arm.first for arm in analysis.arms]  # one seed: bits of two have nothing in common
    folds = [
        fold(f"{run.name}: where its bits are set", [b for bit in bits for b in examples(bit)])
        for run in firsts
        if (bits := run.details.bits)
    ]
    certain = [*explained("Where a bit is certain"), *folds] if folds else []
    return [*by_lag(runs), *figures, *certain]


def recorded(arm: Arm) -> list[RunResults]:
    return [run for run in arm.runs if run.details.persistence]


def persistence(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Plot the information about the token at each lag, a line per seed with a band of two standard
    errors; dotted, two standard deviations of what the z of other documents seem to say. If there
    are more arms than colours, each has a panel.
    """
    looks: dict[str, Style] = {"chance: z of other documents, 2 sd": {"ls": ":", "color": GREY}}
    if len(arms) > len(COLOURS):
        figure, grid = panels(len(arms), 4, (2.75, 1.9), 0.6, sharex=True, sharey=True)
        for axes, arm in zip(grid, arms, strict=True):
            draw_lags(axes, arm, COLOURS[1])
            label_axes(axes, "", "", "")
            axes.set_title(arm.name, fontsize=9)
        title = f"{TITLE}, bits by {LAG}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    else:
        figure = Figure(figsize=(11, 4.6))
        axes = figure.subplots()
        for arm in arms:
            colour = style[arm.name]["color"]
            draw_lags(axes, arm, colour)
            looks[arm.name] = {"lw": 2, "color": colour}
        label_axes(axes, TITLE, LAG, "bits")
    add_legend(figure, looks, 5)
    return figure


def draw_lags(axes: Axes, arm: Arm, colour: str) -> None:
    for curve in (run.details.persistence for run in recorded(arm)):
        lags = range(len(curve))
        low, high = ([e.bits + side * 2 * e.se for e in curve] for side in (-1, 1))
        axes.plot(lags, [e.bits for e in curve], lw=1.8, marker=".", color=colour)
        axes.fill_between(lags, low, high, alpha=0.15, lw=0, color=colour)
        axes.plot(lags, [2 * e.null_sd for e in curve], ":", lw=1, color=colour)
    axes.axhline(0, lw=0.8, color=GREY)
    axes.set_yscale("symlog", linthresh=LINEAR_BITS)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1g}".replace("-", "−"))


def by_lag(runs: list[RunResults]) -> list[Table]:
    """A row per run: information at each lag that any run has, and what is subtracted at lag 1."""
    found = {run.name: run.evaluation.persistence or {} for run in runs}
    lags = sorted({lag for lagged in found.values() for lag in lagged})
    return table(
        {
            "run": name,
            **{f"lag {lag}": net_bits(lagged.get(lag)) for lag in lags},
            "subtracted at lag 1": Cell(number(lagged[1].null_mean if 1 in lagged else None)),
            "its sd": Cell(number(lagged[1].null_sd if 1 in lagged else None)),
        }
        for name, lagged in found.items()
    )


def examples(bit: InformativeBit) -> list[Block]:
    information = (
        f"{net_bits(bit.read)} about the token read, {net_bits(bit.predicted)} about the next one"
    )
    blocks: list[Block] = [heading(f"Bit {bit.bit}: KL {bit.kl}, information {information}")]
    for end, places in (("Highest", bit.set), ("Lowest", bit.unset)):
        blocks.append(Text(f"{end} probability of 1:"))
        for c in places:
            words = f"{c.probability:.3f} {c.before}[{c.token}]{c.after}"
            blocks.append(Samples("sample", words))
    return blocks


def net_bits(excess: NetInformation | None) -> Cell:
    """Bits ± the standard error over documents, if there is more than one."""
    return estimate(Estimate(excess.bits, excess.se) if excess else None)
