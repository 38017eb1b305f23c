"""Does z carry the hidden label? Figures of each run, and a sentence on each arm."""

from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import Chance
from pipelines.artifacts.results import LabelFigures
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section
from pipelines.report.style import COLOURS, below, plain

HEAD = [
    "run",
    "best bit",
    "permuted labels: mean",
    "95 % below",
    "p",
    "all bits together",
    "permuted labels: mean",
    "95 % below",
    "p",
    "the text itself",
]


def section(analysis: Analysis) -> Section | None:
    figures = {}
    measured = []
    for data, group in analysis.by_data.items():
        if arms := [arm for arm in group if len(labels(arm)) == len(arm.runs)]:
            alt = f"Mutual information of each latent bit with the label on {data}"
            figures[f"label_{data}"] = (label_in_bits(arms), alt)
            measured += arms
    if not measured:
        return None
    sentences = [label_sentence(arm) for arm in measured]
    title = "Does z carry the hidden label?"
    return Section("label", title, sentences, label_table(measured), figures)


def labels(arm: Arm) -> list[LabelFigures]:
    """What was measured of each seed that was measured."""
    return [label for run in arm.runs if (label := run.evaluation.label)]


def label_in_bits(arms: list[Arm]) -> Figure:
    """Mutual information of each latent bit with the hidden label, a panel a run, beside chance."""
    runs = [pair for arm in arms for pair in zip(arm.runs, labels(arm), strict=True)]
    columns = min(3, len(runs))
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(3.7 * columns, 2.5 * rows + 0.5))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, (run, label) in zip(panels, runs, strict=False):
        axes.bar(range(len(label.per_bit)), label.per_bit, color=COLOURS[1])
        axes.axhline(label.null_95, ls="--", lw=1.2, color=COLOURS[2])
        plain(axes, f"{run.name}: p = {label.p_value:.3g}", "latent bit", "bits")
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    chance = "best bit of permuted labels, 95 % of the time below"
    below(figure, [Line2D([], [], ls="--", color=COLOURS[2], label=chance)], 1)
    return figure


def label_table(arms: list[Arm]) -> list[list[str]]:
    """Bits of information and p, a row per run under the head."""
    rows = [
        [run.name, *chance_cells(label), *chance_cells(label.whole), f"{label.text:.4f}"]
        for arm in arms
        for run, label in zip(arm.runs, labels(arm), strict=True)
    ]
    return [HEAD, *rows]


def chance_cells(chance: Chance) -> list[str]:
    bits = (chance.value, chance.null_mean, chance.null_95)
    return [*(f"{value:.4f}" for value in bits), f"{chance.p_value:.3g}"]


def p_of_both(label: LabelFigures) -> float:
    """p of two tests, the best bit and all together, of which the better is taken (Bonferroni)."""
    return min(1.0, 2 * min(label.p_value, label.whole.p_value))


def label_sentence(arm: Arm) -> str:
    """Whether z of an arm is shown to carry the label, by p, and how much of it."""
    measured = labels(arm)
    ps = [p_of_both(label) for label in measured]
    carry = sum(p < LEVEL for p in ps)
    if not carry:
        return f"{arm.name}: z is not shown to carry the label (p {at('≥', min(ps), measured)})."
    best = fmean(label.value for label in measured)
    whole = fmean(label.whole.value for label in measured)
    text = fmean(label.text for label in measured)
    how_much = (
        f"{best:.2f} bits by its best bit and {whole:.2f} by all together, of {text:.2f} that the "
        f"text tells{', means over seeds' if len(measured) > 1 else ''}"
    )
    if carry == len(measured):
        return f"{arm.name}: z carries the label: {how_much} (p {at('≤', max(ps), measured)})."
    few = at("≤", max(p for p in ps if p < LEVEL), [None] * carry)
    return (
        f"{arm.name}: z carries the label in {carry} of {len(measured)} runs (p {few}), and is not "
        f"shown to in the others: {how_much}."
    )


def at(sign: str, p: float, of: list[Any]) -> str:
    """p of a single run, or the limit over several."""
    return f"{sign if len(of) > 1 else '='} {p:.3g}"
