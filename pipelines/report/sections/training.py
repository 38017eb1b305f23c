"""Training curves and the held-out bound at each budget, against training tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.curve import Curve
from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import BoundsByArm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import MISSING, Block, Entries, Picture, Verdict, heading, table
from pipelines.report.sections import titled
from pipelines.report.style import (
    ANNEALING,
    GREY,
    Style,
    add_legend,
    dots,
    label_axes,
    log_places,
    millions,
    spaced,
)
from pipelines.report.wording import count, difference_cell, estimate


@titled("Training curves")
def curves(analysis: Analysis) -> Sequence[Block]:
    words = "Training bounds and KL against tokens"
    return analysis.pictures("curves", words, lambda arm: True, training_curves)


def training_curves(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Plot training bounds, and the KL of arms that have one, against tokens; bits per token.
    Dashed: reconstruction CE, not comparable; dotted: κ. Runs of an arm share style and legend.
    """
    latent = any(has_latent(arm.first.curve) for arm in arms)
    width = 0.9 if any(len(arm.runs) > 1 for arm in arms) else 1.6
    figure = Figure(figsize=(11 if latent else 7, 4.4 + 0.25 * (len(arms) // 4)))
    bounds, *kl = figure.subplots(1, 2 if latent else 1, squeeze=False)[0]
    for arm in arms:
        look = {**style[arm.name], "lw": width}
        for curve in (run.curve for run in arm.runs):
            tokens = [row.tokens / 1e6 for row in curve]
            bounds.plot(tokens, [row.bound_bits for row in curve], **look)
            scored = [(row.tokens / 1e6, row.held_out) for row in curve if row.held_out]
            if scored:
                bounds.plot(*zip(*scored, strict=True), "o:", color=look["color"], ms=3, lw=width)
            if has_latent(curve):
                ce = [row.ce_nats / LN2 for row in curve]
                bounds.plot(tokens, ce, "--", color=look["color"], lw=0.6 * width, alpha=0.6)
                kl[0].plot(tokens, [row.kl_bits or 0.0 for row in curve], **look)
        if kappa := arm.run.kappa_bits:
            kl[0].axhline(kappa, ls=":", lw=1.4, color=look["color"])
    lowest = min(row.bound_bits for arm in arms for run in arm.runs for row in run.curve)
    bounds.set_ylim(bottom=max(bounds.get_ylim()[0], lowest / 5))  # CE may fall towards 0
    log_axis(bounds, "Training bound")
    looks = {arm.name: {"lw": 2, **style[arm.name]} for arm in arms}
    if latent:
        log_axis(kl[0], "KL of the latent (dotted: κ)")
        looks["reconstruction CE (not comparable)"] = {"lw": 1, "ls": "--", "color": GREY}
    if any(row.held_out for arm in arms for run in arm.runs for row in run.curve):
        looks["held-out windows"] = {"marker": "o", "ms": 3, "ls": ":", "color": GREY}
    add_legend(figure, looks, 4 if latent else 3)
    return figure


def has_latent(curve: Curve) -> bool:
    return curve[0].kl_bits is not None


def log_axis(axes: Axes, title: str) -> None:
    label_axes(axes, title, "tokens (million)", "bits per token")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    wide = high / low > 30
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


@titled("The bound against training tokens")
def budgets(analysis: Analysis) -> Sequence[Block]:
    blocks: list[Block] = []
    for data, found in analysis.budgets.items():
        unit = UNITS[found.arms[0].unit]
        words = f"{data}: bound at each budget and difference from the plain baseline, {unit}"
        drawn = bound_by_budget(found.arms, analysis.style)
        blocks += [
            Picture(f"budgets_{data}", drawn, f"Held-out bound against tokens on {data}"),
            heading(words),
            *table(budget_row(arm, found.columns) for arm in found.arms),
        ]
    return blocks


def budget_row(arm: Arm, budgets: Mapping[str, BoundsByArm]) -> Entries:
    """A row with each bound, what it is the mean of, and its difference."""
    row: Entries = {"arm": arm.name}
    for head, by_arm in budgets.items():
        bound, difference = MISSING, MISSING
        if found := by_arm.get(arm.name):
            bound = estimate(found.bound)
            notes = [*bound.notes, count(len(arm.runs), "seed"), found.note]
            bound = replace(bound, notes=tuple(filter(None, notes)))
            if c := found.difference:
                verdict = Verdict(c.verdict, reason=c.words)
                difference = replace(difference_cell(c), verdict=verdict)
        row |= {head: bound, f"{head}: difference": difference}
    return row


def bound_by_budget(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Plot the held-out bound against tokens: hollow snapshots of a trunk, full where annealed."""
    unit = arms[0].unit
    figure = Figure(figsize=(11, 4.8 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        look = dots(style[arm.name], 5)
        for run in arm.runs:
            for annealed, line, face in ((False, ":", "white"), (True, "-", look["color"])):
                entries = [each for each in run.evaluation.budgets if each.annealed == annealed]
                bounds = [each.figures(unit).bound.mean for each in entries]
                axes.plot([each.tokens for each in entries], bounds, line, mfc=face, lw=1.1, **look)
    label_axes(axes, "Held-out bound at each budget", "tokens (million)", UNITS[unit])
    runs = [run for arm in arms for run in arm.runs]
    tokens = {entry.tokens for run in runs for entry in run.evaluation.budgets}
    millions(axes, spaced(log_places(tokens)))
    add_legend(figure, {arm.name: dots(style[arm.name], 5) for arm in arms} | ANNEALING, 3)
    return figure
