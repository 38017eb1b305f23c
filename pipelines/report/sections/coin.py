"""The paper's coin: what a model expects of the next flip, without z and with z."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.artifacts.results import CoinDetails, CoinSequence
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, prose
from pipelines.report.style import COLOURS, GREY

EXACT, MODEL, ENCODER, PRIOR = GREY, COLOURS[2], COLOURS[1], COLOURS[3]
LINES: dict[str, dict[str, Any]] = {
    "exact, from the flips so far": {"color": EXACT, "lw": 4, "alpha": 0.45},
    "exact, given the hidden side": {"color": COLOURS[0], "lw": 1.2, "ls": "--"},
    "model without z": {"color": MODEL, "lw": 1.5},
    "model, z from its encoder (it has read these flips)": {
        "color": ENCODER,
        "lw": 1.2,
        "zorder": 3,
    },
    "model, z from the prior": {"color": PRIOR, "lw": 1.2},
}
Curves = Callable[[CoinSequence], list[list[float]]]
DRAWN: dict[str, Curves] = dict(
    zip(
        LINES,
        (
            lambda sequence: [sequence.exact],
            lambda sequence: [[sequence.given_side]],  # a level line
            lambda sequence: [sequence.model] if sequence.model else [],
            lambda sequence: sequence.encoder_z or [],
            lambda sequence: sequence.prior_z or [],
        ),
        strict=True,
    )
)


TEXT = """\
A hidden fair coin decides a whole sequence of noisy copies of it. The curves are a model’s
probability that the next flip is 1. An autoregressive model has to infer the coin from the
copies so far (the paper’s equation 2); a latent can say it at once (equation 1). Without z and
with z from the prior the curves are predictions. With z from its encoder they are not: that z
has read the very flips that are predicted, so the curve shows what z says of the side, not how
well flips can be foreseen."""


def section(analysis: Analysis) -> Section | None:
    figures = []
    for data, group in analysis.by_data.items():
        runs = {run.name: run.details.coin for arm in group for run in arm.runs}
        if coins := {name: coin for name, coin in runs.items() if coin}:
            alt = f"P(next flip is 1) at each flip of held-out sequences of {data}"
            figures.append(Picture(f"coin_{data}", coin_flip(coins), alt))
    return Section("coin", "The paper’s coin", [prose(TEXT), *figures]) if figures else None


def coin_flip(runs: Mapping[str, CoinDetails]) -> Figure:
    """P(next flip is 1) against the number of flips seen: a row per run, a column per held-out
    sequence. All runs have the same sequences.
    """
    first = next(iter(runs.values())).sequences
    columns = len(first)
    figure = Figure(figsize=(4.2 * columns, 2.5 * len(runs) + 0.9))
    grid = figure.subplots(len(runs), columns, sharex=True, sharey=True, squeeze=False)
    for row, (name, coin) in zip(grid, runs.items(), strict=True):
        row[0].set_ylabel(f"{name}\nP(next flip is 1)", fontsize=9.5)
        for axes, sequence in zip(row, coin.sequences, strict=True):
            draw(axes, sequence)
    for axes, sequence in zip(grid[0], first, strict=True):
        title = f"hidden side {sequence.side}, {sequence.flips.count('1')} of 64 flips are 1"
        axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    for axes in grid[-1]:
        axes.set_xlabel("flips seen (dots: the next flip, 1 above, 0 below)", fontsize=9.5)
    handles = [
        Line2D([], [], label=label, **LINES[label])
        for label, curves in DRAWN.items()
        if any(curves(coin.sequences[0]) for coin in runs.values())
    ]
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False)
    height = 0.2 + 0.2 * -(-len(handles) // columns)
    figure.tight_layout(rect=(0, height / figure.get_figheight(), 1, 1))
    return figure


def draw(axes: Axes, sequence: CoinSequence) -> None:
    seen = range(len(sequence.flips))
    for label, curves in DRAWN.items():
        for curve in curves(sequence):
            if len(curve) == 1:
                axes.axhline(curve[0], **LINES[label])
            else:
                axes.plot(seen, curve, **LINES[label])
    flips = [1.06 if flip == "1" else -0.06 for flip in sequence.flips]
    axes.scatter(seen, flips, s=5, color=COLOURS[0], clip_on=False)
    axes.set_ylim(-0.1, 1.1)
    axes.set_yticks([0, 0.2, 0.5, 0.8, 1])
    axes.grid(color="#e5e7eb", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
