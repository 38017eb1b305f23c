"""The paper's coin: what a model expects of the next flip, without z and with z."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from pipelines.artifacts.results import CoinSequence
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section
from pipelines.report.style import COLOURS, GREY, Style, below, panels, plain

ENCODER = "model, z from its encoder (it has read these flips)"
LINES: dict[str, Style] = {
    "exact, from the flips so far": {"color": GREY, "lw": 4, "alpha": 0.45},
    "exact, given the hidden side": {"color": COLOURS[0], "lw": 1.2, "ls": "--"},
    "model without z": {"color": COLOURS[2], "lw": 1.5},
    ENCODER: {"color": COLOURS[1], "lw": 1.2, "zorder": 3},
    "model, z from the prior": {"color": COLOURS[3], "lw": 1.2},
}


def section(analysis: Analysis) -> Section | None:
    words = "P(next flip is 1) at each flip of held-out sequences"
    figures = analysis.pictures("coin", words, coins, lambda arms, _: coin_flip(coins(*arms)))
    return Section("coin", "The paper’s coin", figures) if figures else None


def coins(*arms: Arm) -> dict[str, list[CoinSequence]]:
    """What runs expect of flips, by their names."""
    runs = (run for arm in arms for run in arm.runs)
    return {run.name: coin for run in runs if (coin := run.details.coin)}


def lines_of(sequence: CoinSequence) -> dict[str, list[list[float]]]:
    """By the label of their line; a curve of one value is level."""
    model = [sequence.model] if sequence.model else []
    of_z = (sequence.encoder_z or [], sequence.prior_z or [])
    return dict(zip(LINES, ([sequence.exact], [[sequence.given_side]], model, *of_z), strict=True))


def coin_flip(runs: Mapping[str, list[CoinSequence]]) -> Figure:
    """P(next flip is 1) against flips seen: a row per run, a column per held-out sequence."""
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
        plain(
            axes,
            f"hidden side {sequence.side}, {ones}" if top else "",
            "flips seen (dots: the next flip, 1 above, 0 below)" if last else "",
            "" if place % columns else f"{name}\nP(next flip is 1)",
        )
        axes.set_ylim(-0.1, 1.1)
        axes.set_yticks([0, 0.2, 0.5, 0.8, 1])
    below(figure, {label: look for label, look in LINES.items() if label in drawn}, columns)
    return figure
