"""The figure of the coin: what a model expects of the next flip, without z and with z."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.report.plots import COLOURS, GREY

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
DRAWN = dict(zip(("exact", "given_side", "model", "encoder_z", "prior_z"), LINES, strict=True))


def coin_flip(runs: Mapping[str, Mapping[str, Any]]) -> Figure:
    """P(next flip is 1) against the number of flips seen: a row a run, a column a held-out
    sequence. ``runs`` are details["coin"] by a run's name; all have the same sequences.
    """
    columns = len(next(iter(runs.values()))["sequences"])
    figure = Figure(figsize=(4.2 * columns, 2.5 * len(runs) + 0.9))
    grid = figure.subplots(len(runs), columns, sharex=True, sharey=True, squeeze=False)
    for row, (name, coin) in zip(grid, runs.items(), strict=True):
        row[0].set_ylabel(f"{name}\nP(next flip is 1)", fontsize=9.5)
        for axes, shown in zip(row, coin["sequences"], strict=True):
            draw(axes, shown)
    for axes, shown in zip(grid[0], next(iter(runs.values()))["sequences"], strict=True):
        title = f"hidden side {shown['side']}, {shown['flips'].count('1')} of 64 flips are 1"
        axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    for axes in grid[-1]:
        axes.set_xlabel("flips seen (dots: the next flip, 1 above, 0 below)", fontsize=9.5)
    drawn = [key for key in DRAWN if any(key in c["sequences"][0] for c in runs.values())]
    handles = [Line2D([], [], label=DRAWN[key], **LINES[DRAWN[key]]) for key in drawn]
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False)
    height = 0.2 + 0.2 * -(-len(handles) // columns)
    figure.tight_layout(rect=(0, height / figure.get_figheight(), 1, 1))
    return figure


def draw(axes: Axes, shown: Mapping[str, Any]) -> None:
    seen = range(len(shown["flips"]))
    for key, label in DRAWN.items():
        if key == "given_side":
            axes.axhline(shown[key], **LINES[label])
        elif key in shown:
            curves = shown[key] if key.endswith("_z") else [shown[key]]
            for curve in curves:
                axes.plot(seen, curve, **LINES[label])
    flips = [1.06 if flip == "1" else -0.06 for flip in shown["flips"]]
    axes.scatter(seen, flips, s=5, color=COLOURS[0], clip_on=False)
    axes.set_ylim(-0.1, 1.1)
    axes.set_yticks([0, 0.2, 0.5, 0.8, 1])
    axes.grid(color="#e5e7eb", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
