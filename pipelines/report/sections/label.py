"""Does z carry the hidden label? Measurements of each run, and a verdict on each arm."""

from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import Chance
from pipelines.artifacts.results import LabelFigures
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, Table, explained
from pipelines.report.style import COLOURS, below, plain

HEAD = ["run", "best bit", "permuted labels: mean", "95 % below", "p", "all bits together",
        "permuted labels: mean", "95 % below", "p", "the text itself"]  # fmt: skip


TEXT = """\
Mutual information, in bits, between each latent bit and the label that the text was made with (1
bit); the model has never seen a label. Counting finds too much even where there is no relation:
95 % of the best bits of permuted labels lie below the dashed line. “All bits together” is what a
naive Bayes guess tells; no z can tell more than the text itself. An arm’s verdict takes the
better of the two p, doubled; of 20 runs without a relation, about one falls under 0.05."""


def section(analysis: Analysis) -> Section | None:
    figures = []
    measured = []
    for data, group in analysis.by_data.items():
        if arms := [arm for arm in group if len(labels(arm)) == len(arm.runs)]:
            alt = f"Mutual information of each latent bit with the label on {data}"
            figures.append(Picture(f"label_{data}", label_in_bits(arms), alt))
            measured += arms
    if not measured:
        return None
    verdicts = Table(
        ["arm", "z carries the label", "p", "best bit", "all together", "the text"],
        list(map(label_verdict, measured)),
    )
    text = explained(TEXT, "information-about-a-label")
    blocks = [text, verdicts, label_table(measured), *figures]
    return Section("label", "Does z carry the hidden label?", blocks)


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


def label_table(arms: list[Arm]) -> Table:
    """Bits of information and p of each run."""
    rows = [
        [run.name, *chance_cells(label), *chance_cells(label.whole), f"{label.text:.4f}"]
        for arm in arms
        for run, label in zip(arm.runs, labels(arm), strict=True)
    ]
    return Table(HEAD, rows)


def chance_cells(chance: Chance) -> list[str]:
    bits = (chance.value, chance.null_mean, chance.null_95)
    return [*(f"{value:.4f}" for value in bits), f"{chance.p_value:.3g}"]


def p_of_both(label: LabelFigures) -> float:
    """p of two tests, the best bit and all together, of which the better is taken (Bonferroni)."""
    return min(1.0, 2 * min(label.p_value, label.whole.p_value))


def label_verdict(arm: Arm) -> list[str]:
    """In how many runs z is shown to carry the label, the largest p of these or else the smallest
    of all, and how much it carries, means over seeds.
    """
    measured = labels(arm)
    ps = [p_of_both(label) for label in measured]
    shown = [p for p in ps if p < LEVEL]
    words = f"{len(shown)} of {len(ps)} runs" if shown else "not shown"
    limit = ("≤", max(shown)) if shown else ("≥", min(ps))
    sign = limit[0] if len(shown or ps) > 1 else "="
    bits = (
        fmean(label.value for label in measured),
        fmean(label.whole.value for label in measured),
        fmean(label.text for label in measured),
    )
    return [arm.name, words, f"p {sign} {limit[1]:.3g}", *(f"{value:.2f}" for value in bits)]
