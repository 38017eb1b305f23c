"""The figures of a sweep: held-out bounds against each setting that was varied."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.artifacts.results import UNITS
from pipelines.report.style import COLOURS, GREY, Scale, plain, scale
from pipelines.sweep.ranking import KAPPA, SweepAnalysis, settings_words, value_words

LABELS = {
    KAPPA: "κ, bits per token",
    "architecture.latent_bits": "H, latent bits",
    "optim.lr": "learning rate",
    "run.tokens": "training tokens",
}


@dataclass(frozen=True)
class Dot:
    """One trial in a figure."""

    value: Any  # of the setting on the horizontal axis; None is a baseline on the axis of κ
    others: str  # the other settings, except the seed, in words
    bound: float
    collapsed: bool


def draw(sweep: SweepAnalysis) -> dict[str, Figure]:
    """A figure for each setting that was varied, κ first."""
    figures = {}
    for key in sorted(sweep.varied, key=lambda k: k != KAPPA):
        if dots := dots_of(sweep, key):
            figures[key.replace(".", "_")] = bound_against(
                LABELS.get(key, key),
                dots,
                UNITS[sweep.plan.unit],
                lambda value, key=key: value_words(key, value),  # type: ignore[misc]
                log=key == KAPPA,
            )
    return figures


def dots_of(sweep: SweepAnalysis, key: str) -> list[Dot]:
    dots = []
    for name, run in sweep.runs.items():
        others = {k: value for k, value in sweep.setting_of(name).items() if k != key}
        words = settings_words(others) if len(sweep.varied) > 1 else ""
        value, bound = sweep.plan.settings[name][key], run.bound(sweep.plan.unit).mean
        dots.append(Dot(value, words, bound, bool(run.evaluation.collapsed)))
    return dots


def bound_against(
    label: str,
    dots: list[Dot],
    unit: str,
    name: Callable[[Any], str] = str,
    log: bool = False,
) -> Figure:
    """Bounds against the setting called ``label``; ``name`` gives the tick label of a value.

    A line joins the means over seeds. Trials that differ in other settings too have a line and a
    colour for each of these, or one line for all where they are too many to tell apart.
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
    plain(axes, "Held-out bound: one dot a trial, lines through means", label, unit)
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
