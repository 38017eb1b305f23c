"""Pictures of growth: measured points, and the planner's line beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import matplotlib.figure
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from pipelines.report.style import COLOURS, GREY, GRID

ARMS = {"baseline": (COLOURS[0], "o"), "Free Transformer": (COLOURS[1], "s")}


@dataclass(frozen=True)
class Curve:
    """One quantity of one arm against one axis."""

    quantity: str  # "time" or "memory"
    axis: str
    arm: str
    unit: str
    values: tuple[int, ...]
    measured: list[float]
    planned: list[float]

    def ratios(self) -> list[float]:
        """Measured ÷ planned."""
        return [a / b for a, b in zip(self.measured, self.planned, strict=True)]


def draw(curves: Sequence[Curve], labels: dict[str, str], words: str) -> bytes:
    """A column for each axis of ``labels``, time above memory, as PNG."""
    picture = matplotlib.figure.Figure(figsize=(1 + 2.6 * len(labels), 5.8), layout="constrained")
    panels = picture.subplots(2, len(labels), squeeze=False)
    for column, (axis, label) in enumerate(labels.items()):
        for row, quantity in enumerate(("time", "memory")):
            here = [c for c in curves if (c.axis, c.quantity) == (axis, quantity)]
            show(panels[row, column], here)
        panels[1, column].set_xlabel(label)
    used = [arm for arm in ARMS if any(curve.arm == arm for curve in curves)]
    handles = [
        panels[0, 0].plot([], [], color=c, marker=m, ls="")[0] for c, m in map(ARMS.get, used)
    ]
    picture.legend(handles, used, loc="outside upper left", ncols=2, frameon=False)
    picture.suptitle(words, x=0.99, ha="right", fontsize=10, color=GREY)
    file = BytesIO()
    picture.savefig(file, format="png", dpi=110)
    return file.getvalue()


def show(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve in curves:
        colour, marker = ARMS[curve.arm]
        axes.plot(curve.values, curve.planned, color=colour, lw=1, alpha=0.7)
        axes.plot(curve.values, curve.measured, color=colour, marker=marker, markersize=5, ls="")
        ratios = zip(curve.values, curve.measured, curve.ratios(), strict=True)
        below = curve.arm == "baseline" and len(curves) > 1
        for value, height, ratio in ratios:
            axes.annotate(
                f"{ratio:.2f}", (value, height), (0, -11 if below else 6), color=colour,
                textcoords="offset points", ha="center", fontsize=6.5,
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", ylabel=f"{curves[0].quantity}, {curves[0].unit}")
    axes.margins(0.12)
    heights = [height for curve in curves for height in (*curve.measured, *curve.planned)]
    if max(heights) < 2 * min(heights):  # not to blow up what hardly changes
        axes.set_ylim(min(heights) / 1.6, max(heights) * 1.6)
    axes.xaxis.set_major_locator(FixedLocator(curves[0].values))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=GRID, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
