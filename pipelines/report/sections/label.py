"""Does z carry the hidden label? Measurements of each run, and a verdict on each arm."""

from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import Chance
from pipelines.artifacts.results import LabelFigures
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table
from pipelines.report.style import COLOURS, below, panels, plain
from pipelines.report.wording import number

VERDICTS = ["arm", "z carries the label", "p", "best bit", "all together", "the text"]
CHANCE = ["permuted labels: mean", "95 % below", "p"]
HEAD = ["run", "best bit", *CHANCE, "all bits together", *CHANCE, "the text itself"]


def section(analysis: Analysis) -> Section | None:
    words = "Mutual information of each latent bit with the label"
    figures = analysis.pictures("label", words, labels, lambda arms, _: label_in_bits(arms))
    arms = [arm for arm in analysis.arms if labels(arm)]
    if not arms:
        return None
    verdicts = Table(VERDICTS, list(map(label_verdict, arms)))
    rows = [
        [name, *chance_cells(label), *chance_cells(label.whole), number(label.text)]
        for arm in arms
        for name, label in labels(arm).items()
    ]
    blocks = [verdicts, Table(HEAD, rows), *figures]
    return Section("label", "Does z carry the hidden label?", blocks)


def labels(arm: Arm) -> dict[str, LabelFigures]:
    """What was measured of each seed, by the name of its run; of a baseline nothing."""
    return {run.name: label for run in arm.runs if (label := run.evaluation.label)}


def label_in_bits(arms: list[Arm]) -> Figure:
    """Mutual information of each latent bit with the hidden label, a panel a run, beside chance."""
    runs = {name: label for arm in arms for name, label in labels(arm).items()}
    figure, grid = panels(len(runs), 3, (3.7, 2.5), 0.5, sharey=True)
    for axes, (name, label) in zip(grid, runs.items(), strict=True):
        axes.bar(range(len(label.per_bit)), label.per_bit, color=COLOURS[1])
        axes.axhline(label.null_95, ls="--", lw=1.2, color=COLOURS[2])
        plain(axes, f"{name}: p = {label.p_value:.3g}", "latent bit", "bits")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    chance = "best bit of permuted labels, 95 % of the time below"
    below(figure, {chance: {"ls": "--", "color": COLOURS[2]}}, 1)
    return figure


def chance_cells(chance: Chance) -> list[str]:
    bits = (chance.value, chance.null_mean, chance.null_95)
    return [*map(number, bits), f"{chance.p_value:.3g}"]


def label_verdict(arm: Arm) -> list[str]:
    """In how many runs z is shown to carry the label, the largest p of these or else the smallest
    of all, and how much it carries, means over seeds. A run's p is that of two tests, the best bit
    and all together, of which the better is taken (Bonferroni).
    """
    found = [*labels(arm).values()]
    ps = [min(1.0, 2 * min(label.p_value, label.whole.p_value)) for label in found]
    shown = [p for p in ps if p < LEVEL]
    words = f"{len(shown)} of {len(ps)} runs" if shown else "not shown"
    sign, p = ("≤", max(shown)) if shown else ("≥", min(ps))
    sign = sign if len(shown or ps) > 1 else "="
    bits = zip(*((label.value, label.whole.value, label.text) for label in found), strict=True)
    return [arm.name, words, f"p {sign} {p:.3g}", *(number(fmean(each), 2) for each in bits)]
