"""What models know about a hidden cause of their data: the side of the paper's coin, a label."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.statistics import Chance
from pipelines.artifacts.results import CoinSequence, LabelFigures
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Cell, Entries, Entry, Table, table
from pipelines.report.sections import titled
from pipelines.report.style import COLOURS, GREY, Style, add_legend, label_axes, panels
from pipelines.report.wording import number, p_value

ENCODER = "model, z from its encoder (it has read these flips)"
LINES: dict[str, Style] = {
    "exact, from the flips so far": {"color": GREY, "lw": 4, "alpha": 0.45},
    "exact, given the hidden side": {"color": COLOURS[0], "lw": 1.2, "ls": "--"},
    "model without z": {"color": COLOURS[2], "lw": 1.5},
    ENCODER: {"color": COLOURS[1], "lw": 1.2, "zorder": 3},
    "model, z from the prior": {"color": COLOURS[3], "lw": 1.2},
}
CHANCE = ["permuted labels: mean", "95 % below", "p"]
LABEL_HEAD = ["run", "best bit", *CHANCE, "all bits together", *CHANCE, "the text itself"]


@titled("The paper’s coin")
def coin(analysis: Analysis) -> Sequence[Block]:
    words = "P(next flip is 1) at each flip of held-out sequences"
    return analysis.pictures("coin", words, coins, lambda arms, _: coin_flip(coins(*arms)))


def coins(*arms: Arm) -> dict[str, list[CoinSequence]]:
    """What runs expect of flips, by the runs' names."""
    runs = (run for arm in arms for run in arm.runs)
    return {run.name: coin for run in runs if (coin := run.details.coin)}


def lines_of(sequence: CoinSequence) -> dict[str, list[list[float]]]:
    """Curves of a sequence by the label of their line; a curve of one value is level."""
    model = [sequence.model] if sequence.model else []
    of_z = (sequence.encoder_z or [], sequence.prior_z or [])
    return dict(zip(LINES, ([sequence.exact], [[sequence.given_side]], model, *of_z), strict=True))


def coin_flip(runs: Mapping[str, list[CoinSequence]]) -> Figure:
    """Plot P(next flip is 1) against flips seen: a row per run, a column per held-out sequence."""
    columns = len(next(iter(runs.values())))
    shown = [(name, each) for name, coin in runs.items() for each in coin]
    figure, grid = panels(len(shown), columns, (4.2, 2.5), 0.9, sharex=True, sharey=True)
    drawn = set[str]()
    for place, (axes, (name, sequence)) in enumerate(zip(grid, shown, strict=True)):
        seen = range(len(sequence.flips))
        for label, each in lines_of(sequence).items():
            for curve in each:
                drawn.add(label)
                if len(curve) == 1:
                    axes.axhline(curve[0], **LINES[label])
                else:
                    axes.plot(seen, curve, **LINES[label])
        flips = [1.06 if flip == "1" else -0.06 for flip in sequence.flips]
        axes.scatter(seen, flips, s=5, color=COLOURS[0], clip_on=False)
        top, last = place < columns, place >= len(shown) - columns
        ones = f"{sequence.flips.count('1')} of {len(seen)} flips are 1"
        label_axes(
            axes,
            f"hidden side {sequence.side}, {ones}" if top else "",
            "flips seen (dots: the next flip, 1 above, 0 below)" if last else "",
            "" if place % columns else f"{name}\nP(next flip is 1)",
        )
        axes.set_ylim(-0.1, 1.1)
        axes.set_yticks([0, 0.2, 0.5, 0.8, 1])
    add_legend(figure, {label: look for label, look in LINES.items() if label in drawn}, columns)
    return figure


@titled("Does z carry the hidden label?")
def label(analysis: Analysis) -> Sequence[Block]:
    """Measurements of each run, and a verdict on each arm."""
    words = "Mutual information of each latent bit with the label"
    figures = analysis.pictures("label", words, labels, lambda arms, _: label_in_bits(arms))
    arms = [arm for arm in analysis.arms if labels(arm)]
    rows: list[list[Entry]] = [
        [name, *chance_cells(label), *chance_cells(label.whole), Cell(number(label.text))]
        for arm in arms
        for name, label in labels(arm).items()
    ]
    if not rows:
        return figures
    return [*table(map(label_verdict, arms)), Table(LABEL_HEAD, rows), *figures]


def labels(arm: Arm) -> dict[str, LabelFigures]:
    """Label figures of each seed, by the name of its run; none for a baseline."""
    return {run.name: label for run in arm.runs if (label := run.evaluation.label)}


def label_in_bits(arms: list[Arm]) -> Figure:
    """Plot each latent bit's mutual information with the hidden label beside chance, by run."""
    runs = {name: label for arm in arms for name, label in labels(arm).items()}
    figure, grid = panels(len(runs), 3, (3.7, 2.5), 0.5, sharey=True)
    for axes, (name, label) in zip(grid, runs.items(), strict=True):
        axes.bar(range(len(label.per_bit)), label.per_bit, color=COLOURS[1])
        axes.axhline(label.null_95, ls="--", lw=1.2, color=COLOURS[2])
        label_axes(axes, f"{name}: p = {label.p_value:.3g}", "latent bit", "bits")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    chance = "best bit of permuted labels, 95 % of the time below"
    add_legend(figure, {chance: {"ls": "--", "color": COLOURS[2]}}, 1)
    return figure


def chance_cells(chance: Chance) -> list[Cell]:
    bits = (chance.value, chance.null_mean, chance.null_95)
    return [*(Cell(number(each)) for each in bits), Cell(p_value(chance.p_value))]


def label_verdict(arm: Arm) -> Entries:
    """A row with the number of runs whose z is shown to carry the label; the largest p of those, or
    else the smallest of all; and how much z carries, means over seeds. A run has two tests, the
    best bit and all bits together, and its p is the better one's, doubled (Bonferroni).
    """
    found = [*labels(arm).values()]
    ps = [min(1.0, 2 * min(label.p_value, label.whole.p_value)) for label in found]
    shown = [p for p in ps if p < LEVEL]
    sign, p = ("≤", max(shown)) if shown else ("≥", min(ps))
    sign = sign if len(shown or ps) > 1 else "="
    return {
        "arm": arm.name,
        "z carries the label": Cell(f"{len(shown)} of {len(ps)} runs") if shown else "not shown",
        "p": f"p {sign} {p:.3g}",
        "best bit": Cell(number(fmean(label.value for label in found), 2)),
        "all together": Cell(number(fmean(label.whole.value for label in found), 2)),
        "the text": Cell(number(fmean(label.text for label in found), 2)),
    }
