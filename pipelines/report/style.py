"""How figures look: colours, axes, legends, and the horizontal axis of a setting's values."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's palette, told apart by colour-blind readers, with Tol's wine for its yellow; from
# the ninth run on with markers
COLOURS = (
    "#000000",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#882255",
)
MARKERS = ("", "o", "s", "^", "D", "v")
GREY = "#767676"
GRID = "#e5e7eb"
WIDE = 8  # a setting whose values differ by this factor has a logarithmic axis
TICKS = 12  # labels on an axis, at most


Style = dict[str, Any]


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A line style for each run or arm, the same in every figure that is given it."""
    return {
        name: {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i // len(COLOURS) % len(MARKERS)],
            "markevery": 0.1,
            "markersize": 4,
        }
        for i, name in enumerate(names)
    }


def plain(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def below(figure: Figure, handles: list[Line2D], columns: int) -> None:
    """A legend under the axes."""
    height = (0.1 + 0.2 * -(-len(handles) // columns)) / figure.get_figheight()
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, height, 1, 1))


@dataclass(frozen=True)
class Scale:
    """Where values stand on the horizontal axis: what is no number, or has no logarithm, apart on
    the left.
    """

    places: dict[Any, float]
    apart: set[Any]
    log: bool

    def ticks(self) -> list[Any]:
        """Values to label: those that keep their distance from the one before."""
        ordered = sorted(self.places, key=lambda value: self.places[value])
        width = self.places[ordered[-1]] - self.places[ordered[0]]
        spaced = ordered[:1]
        for value in ordered[1:]:
            if self.places[value] - self.places[spaced[-1]] >= width / TICKS:
                spaced.append(value)
        return spaced


def scale(values: list[Any], log: bool = False) -> Scale:
    """The axis for these values; ``log`` asks for a logarithmic one in any case."""
    different = list(dict.fromkeys(values))
    numbers = sorted(v for v in different if isinstance(v, int | float) and not isinstance(v, bool))
    positive = [v for v in numbers if v > 0]
    log = bool(positive) and (log or (numbers == positive and positive[-1] / positive[0] >= WIDE))
    placed = positive if log else numbers
    places = {v: log2(v) if log else float(v) for v in placed}
    left = min(places.values(), default=0.0)
    step = max((max(places.values(), default=0.0) - left) / 8, 1.0 if log or not places else 0.0)
    apart = [v for v in numbers if v not in places] + [v for v in different if v not in numbers]
    for i, value in enumerate(apart, start=1):
        places[value] = left - i * (step or 1.0)
    return Scale(places, set(apart) - set(numbers), log)
