"""The figure of a sweep: held-out bounds against one setting, a dot for each seed."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.plots import COLOURS, GREY

WIDE = 8  # a setting whose values differ by this factor has a logarithmic axis
TICKS = 12  # labels on an axis, at most


@dataclass(frozen=True)
class Dot:
    """One trial in a figure."""

    value: Any  # of the setting on the horizontal axis; None is a baseline on the axis of κ
    others: str  # the other settings, but for the seed, in words
    bound: float
    collapsed: bool


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
        kept = ordered[:1]
        for value in ordered[1:]:
            if self.places[value] - self.places[kept[-1]] >= width / TICKS:
                kept.append(value)
        return kept


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


def bound_against(
    label: str,
    dots: list[Dot],
    unit: str,
    name: Callable[[Any], str] = str,
    log: bool = False,
) -> Figure:
    """Bounds against the setting called ``label``; ``name`` writes its values on the axis.

    A line joins the means over seeds. Trials that differ in other settings too have a line for each
    of these, in a colour of its own, or one line for all where they are too many to tell apart.
    """
    axis = scale([dot.value for dot in dots], log)
    baselines = [dot for dot in dots if dot.value is None and axis.log]
    groups: dict[str, list[Dot]] = defaultdict(list)
    for dot in dots:
        if dot not in baselines:
            groups[dot.others].append(dot)
    if len(groups) > len(COLOURS) - 1:
        groups = {"all settings": [dot for group in groups.values() for dot in group]}
    figure = Figure(figsize=(8, 4.6))
    axes = figure.subplots()
    handles = []
    for (words, group), colour in zip(groups.items(), COLOURS[1:], strict=False):
        draw_group(axes, group, axis, colour)
        line_label = words or "mean over seeds"
        handles.append(Line2D([], [], color=colour, marker="o", ms=4, label=line_label))
    if baselines:
        draw_group(axes, baselines, axis, COLOURS[0])
        mean = sum(dot.bound for dot in baselines) / len(baselines)
        axes.axhline(mean, ls="--", lw=1.2, color=GREY)
        handles.append(Line2D([], [], color=GREY, ls="--", label="baseline, mean"))
    if any(dot.collapsed for dot in dots):
        handles.append(Line2D([], [], color=GREY, marker="x", ls="", label="latent collapsed"))
    ticks = axis.ticks()
    axes.set_xticks([axis.places[value] for value in ticks], [name(value) for value in ticks])
    axes.set_xlabel(label)
    axes.set_ylabel(unit)
    axes.set_title("Held-out bound: one dot a trial, lines through means", loc="left", fontsize=11,
                   fontweight="bold")  # fmt: skip
    axes.grid(color="#e5e7eb", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.06, y=0.1)
    if len(handles) > 1:
        axes.legend(handles=handles, frameon=False, fontsize=9)
    figure.tight_layout()
    return figure


def draw_group(axes: Axes, dots: list[Dot], axis: Scale, colour: str) -> None:
    by_value: dict[Any, list[float]] = defaultdict(list)
    for dot in dots:
        by_value[dot.value].append(dot.bound)
        axes.plot(
            axis.places[dot.value],
            dot.bound,
            marker="x" if dot.collapsed else "o",
            ms=5.5,
            alpha=0.75,
            color=colour,
        )
    joined = sorted(
        (axis.places[value], sum(bounds) / len(bounds))
        for value, bounds in by_value.items()
        if value not in axis.apart
    )
    axes.plot([x for x, _ in joined], [y for _, y in joined], lw=1.5, color=colour)
