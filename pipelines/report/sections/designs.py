"""Designs of the latent side by side: what each gains over its model's own."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.figure import Figure

from ftmodel.costs.training import flops_per_token
from pipelines.artifacts.curve import training_seconds
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.tokens.shards import read_metadata
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison, Designs, design_words
from pipelines.host.files import tokens_folder
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import MISSING, Block, Cell, Entries, Picture, table
from pipelines.report.sections import titled
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.style import COLOURS, GREY, label_axes
from pipelines.report.verdicts import find_comparison
from pipelines.report.wording import estimate, number, signed, verdict

ROW_INCHES = 0.34  # of a design in the picture


@titled("Designs of the latent, side by side")
def designs(analysis: Analysis) -> Sequence[Block]:
    rows = [design_row(arm, group, analysis) for group in analysis.designs for arm in group.arms]
    alt = "What each design of the latent gains over that of its model, one dot per seed"
    pictures = [Picture("designs", draw_gains(analysis.designs), alt)] if rows else []
    return [*table(rows), *pictures]


def design_row(arm: Arm, group: Designs, analysis: Analysis) -> Entries:
    use, scores = analysis.uses[arm.name], arm_scores(arm)  # of generations: on the target task
    spread = [number(scores.get(f"spread_{z}"), 1) for z in ("fresh", "pinned")]
    speeds = [arm.trained_tokens / training_seconds(run.curve) for run in arm.runs]
    return {
        "arm": arm.name,
        "data": arm.run.data,
        "κ": Cell(arm.first.kappa),
        "design": design_words(arm),
        "bound": replace(estimate(arm.bound()), notes=()),
        "− its model's design": judged(next((c for c in group.others if c.arm is arm), None)),
        "− baseline": judged(find_comparison(analysis.comparisons, arm, plain=True)),
        "− larger baseline": judged(find_comparison(analysis.comparisons, arm, plain=False)),
        "use of z": Cell(number(use.use.mean)),
        "recovery": Cell(number(use.recovery, 2)),
        "waste": Cell(number(use.waste.mean)),
        "valid": Cell(number(scores.get("valid_fresh"), 2)),
        "spread": Cell(" → ".join(spread)) if scores else MISSING,
        "noise": Cell(number(scores.get("noise_pinned"), 2)),
        "parameters": Cell(f"{arm.parameters:,}"),
        "FLOPs/token": training_flops(arm),
        "tokens/s in training": Cell(f"{fmean(speeds):,.0f}"),
    }


def judged(comparison: Comparison | None) -> Cell:
    if comparison is None:
        return MISSING
    return Cell(signed(comparison.mean), verdict=verdict(comparison))


def training_flops(arm: Arm) -> Cell:
    """FLOPs of training, per token of a full context; unknown without the data's vocabulary."""
    folder, config = tokens_folder(arm.run.data), arm.first.config
    if config is None or not (folder / "metadata.json").exists():
        return MISSING
    flops = flops_per_token(config, read_metadata(folder).vocab_size).total
    return Cell(f"{flops / 1e6:.2f} M")


def draw_gains(groups: list[Designs]) -> Figure:
    """A panel for each group: the bound of the model's own design minus each seed's bound."""
    heights = [1.2 + ROW_INCHES * len(group.arms) for group in groups]
    figure = Figure(figsize=(9, sum(heights)))
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        own, level = group.own, group.own.bound().mean
        for place, arm in enumerate(group.arms):
            gains = [level - bound for bound in arm.bounds()]
            colour = GREY if arm is own else COLOURS[1]
            axes.plot(gains, [place] * len(gains), "o", ms=5, color=colour, alpha=0.7)
            axes.plot([fmean(gains)], [place], "|", ms=14, color=colour)
        axes.axvline(0, lw=0.8, color=GREY)
        axes.set_yticks(range(len(group.arms)), [design_words(arm) for arm in group.arms])
        axes.set_ylim(len(group.arms) - 0.4, -0.6)
        title = f"Gain over the model's own design, {own.run.data}, κ = {own.first.kappa}"
        label_axes(axes, title, f"{UNITS[own.unit]}; to the right the bound is lower", "")
    figure.tight_layout()
    return figure
