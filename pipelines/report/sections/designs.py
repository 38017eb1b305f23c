"""Designs of the latent side by side: what each gains over its model's own."""

from collections.abc import Sequence
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
from pipelines.report.blocks import Block, Picture, table
from pipelines.report.sections import titled
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.style import COLOURS, GREY, plain
from pipelines.report.verdicts import find
from pipelines.report.wording import number, signed

ROW_INCHES = 0.34  # of a design in the picture


@titled("Designs of the latent, side by side")
def designs(analysis: Analysis) -> Sequence[Block]:
    rows = [row(arm, group, analysis) for group in analysis.designs for arm in group.arms]
    alt = "What each design of the latent gains over that of its model, one dot per seed"
    pictures = [Picture("designs", drawn(analysis.designs), alt)] if rows else []
    return [*table(rows), *pictures]


def row(arm: Arm, group: Designs, analysis: Analysis) -> dict[str, str]:
    use, scores = analysis.uses[arm.name], arm_scores(arm)  # of generations: on the target task
    spread = [number(scores.get(f"spread_{z}"), 1) for z in ("fresh", "pinned")]
    speeds = [arm.trained_tokens / training_seconds(run.curve) for run in arm.runs]
    return {
        "arm": arm.name,
        "data": arm.run.data,
        "κ": arm.first.kappa,
        "design": design_words(arm),
        "bound": str(arm.bound()),
        "− its model's design": cell(next((c for c in group.others if c.arm is arm), None)),
        "− baseline": cell(find(analysis.comparisons, arm, plain=True)),
        "− larger baseline": cell(find(analysis.comparisons, arm, plain=False)),
        "use of z": number(use.use.mean),
        "recovery": number(use.recovery, 2),
        "waste": number(use.waste.mean),
        "valid": number(scores.get("valid_fresh"), 2),
        "spread": " → ".join(spread) if scores else "–",
        "noise": number(scores.get("noise_pinned"), 2),
        "parameters": f"{arm.parameters:,}",
        "FLOPs/token": training_flops(arm),
        "tokens/s in training": f"{fmean(speeds):,.0f}",
    }


def cell(comparison: Comparison | None) -> str:
    if comparison is None:
        return "–"
    return f"{signed(comparison.mean)}, {comparison.qualified_verdict}"


def training_flops(arm: Arm) -> str:
    """FLOPs of training, per token of a full context; unknown without the data's vocabulary."""
    folder, config = tokens_folder(arm.run.data), arm.first.config
    if config is None or not (folder / "metadata.json").exists():
        return "–"
    return f"{flops_per_token(config, read_metadata(folder).vocab_size).total / 1e6:.2f} M"


def drawn(groups: list[Designs]) -> Figure:
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
        plain(axes, title, f"{UNITS[own.unit]}; to the right the bound is lower", "")
    figure.tight_layout()
    return figure
