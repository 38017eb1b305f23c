"""The figure of a sweep: held-out bounds against one setting, a dot for each seed."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.report.plots import COLOURS, GREY
from pipelines.report.scale import Scale, scale


@dataclass(frozen=True)
class Dot:
    """One trial in a figure."""

    value: Any  # of the setting on the horizontal axis; None is a baseline on the axis of κ
    others: str  # the other settings, but for the seed, in words
    bound: float
    collapsed: bool


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
