"""What the bits of z say about the tokens of text: a curve over lags, contexts of single bits."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ftmodel.analysis.bit_information import NetInformation
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import InformativeBit
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Samples, Section, Table, Text, fold, heading
from pipelines.report.explanations import explained
from pipelines.report.style import COLOURS, GREY, Style, below, panels, plain
from pipelines.report.wording import estimate, number

LINEAR_BITS = 0.01  # below which the axis is linear
TITLE = "Information of z about a token, summed over bits"
LAG = "lag (0: the token read, 1: the one predicted)"


def section(analysis: Analysis) -> Section | None:
    words = "Information of the bits of z about the token at each lag,"
    figures = analysis.pictures("persistence", words, recorded, persistence)
    runs = [run for arm in analysis.arms for run in recorded(arm)]
    if not runs:
        return None
    firsts = [arm.first for arm in analysis.arms]  # one seed: bits of two have nothing in common
    folds = [
        fold(f"{run.name}: where its bits are set", [b for bit in bits for b in examples(bit)])
        for run in firsts
        if (bits := run.details.bits)
    ]
    certain = [explained("Where a bit is certain"), *folds] if folds else []
    blocks = [table(runs), *figures, *certain]
    return Section("bit_information", "What the bits of z say about tokens", blocks)


def recorded(arm: Arm) -> list[RunResults]:
    return [run for run in arm.runs if run.details.persistence]


def persistence(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Information about the token at each lag, a line per seed with a band of two standard errors;
    dotted, two standard deviations of what the z of other documents seem to say. More arms than
    there are colours have a panel each.
    """
    looks: dict[str, Style] = {"chance: z of other documents, 2 sd": {"ls": ":", "color": GREY}}
    if len(arms) > len(COLOURS):
        figure, grid = panels(len(arms), 4, (2.75, 1.9), 0.6, sharex=True, sharey=True)
        for axes, arm in zip(grid, arms, strict=True):
            draw_lags(axes, arm, COLOURS[1])
            plain(axes, "", "", "")
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
        plain(axes, TITLE, LAG, "bits")
    below(figure, looks, 5)
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


def table(runs: list[RunResults]) -> Table:
    """A row per run: information at each lag that any of them has, and the null of the first."""
    lags = sorted({lag for run in runs for lag in run.evaluation.persistence or {}})
    head = ["run", *(f"lag {lag}" for lag in lags), "subtracted at lag 1", "its sd"]
    rows = []
    for run in runs:
        by_lag = run.evaluation.persistence or {}
        null = by_lag.get(1)
        chance = [number(null.null_mean), number(null.null_sd)] if null else ["–", "–"]
        rows.append([run.name, *(net_bits(by_lag.get(lag)) for lag in lags), *chance])
    return Table(head, rows)


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


def net_bits(excess: NetInformation | None) -> str:
    """Bits ± the standard error over documents, if there is more than one."""
    return estimate(Estimate(excess.bits, excess.se) if excess else None)
