"""How figures look: colours, axes, panels, seeds with their means, and legends."""

from collections.abc import Iterable, Mapping
from math import log2
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

# Okabe and Ito's palette, told apart by colour-blind readers, with Tol's wine for its yellow; from
# the ninth arm on with markers
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#882255")
MARKERS = ("", "o", "s", "^", "D", "v")
GREY = "#767676"
GRID = "#e5e7eb"
MAX_TICKS = 12

Style = dict[str, Any]
ANNEALING: dict[str, Style] = {  # markers at token budgets
    "snapshot, not annealed": {"color": GREY, "ls": ":", "marker": "o", "mfc": "white"},
    "learning rate annealed to zero": {"color": GREY, "marker": "o"},
}


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


def dots(style: Style, size: float = 4) -> Style:
    """The colour and marker of a style, for a line whose every point is marked."""
    return {"color": style["color"], "marker": style["marker"] or "o", "ms": size}


def label_axes(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def panels(
    number: int,
    columns: int,
    size: tuple[float, float],
    legend: float,
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure of so many axes, each of ``size`` inches, with room for a legend below them."""
    columns = min(columns, number)
    rows = -(-number // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows + legend))
    axes = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False).flatten()
    for unused in axes[number:]:
        unused.set_visible(False)
    return figure, [*axes[:number]]


def add_legend(figure: Figure, looks: Mapping[str, Style], columns: int) -> None:
    """Add a legend under the axes: labels, and how the line of each looks."""
    height = (0.1 + 0.2 * -(-len(looks) // columns)) / figure.get_figheight()
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, height, 1, 1))


def seeds_and_means(
    axes: Axes, points: Mapping[float, list[float]], colour: str, line: str = "-"
) -> None:
    """Plot seeds at each x as dots, and a line through their means."""
    for x, seeds in points.items():
        axes.plot([x] * len(seeds), seeds, "o", ms=4, color=colour, alpha=0.6)
    means = [fmean(seeds) for seeds in points.values()]
    axes.plot([*points], means, line, lw=1.6, color=colour)


def millions(axes: Axes, ticks: Iterable[float], unit: str = "") -> None:
    """Make the horizontal axis logarithmic, with these ticks, labelled in millions."""
    axes.set_xscale("log")
    axes.set_xticks([*ticks], [f"{tick / 1e6:.3g}{unit}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def log_places(values: Iterable[float]) -> dict[float, float]:
    """Places of values from 0 on along a logarithmic axis: 0 is apart on the left."""
    places = {value: log2(value) for value in sorted({*values}) if value > 0}
    first, last = min(places.values()), max(places.values())
    zero = {0: first - max((last - first) / 8, 1.0)} if 0 in values else {}
    return zero | places


def spaced(places: Mapping[float, float]) -> list[float]:
    """The values to label: each keeps its distance from the labelled one before."""
    values = [*places]
    width = places[values[-1]] - places[values[0]]
    kept = values[:1]
    for value in values[1:]:
        if places[value] - places[kept[-1]] >= width / MAX_TICKS:
            kept.append(value)
    return kept
