"""Designs of the latent side by side: what each gains over that of its model."""

from statistics import fmean

from matplotlib.figure import Figure

from ftmodel.costs.training import flops_per_token
from pipelines.artifacts.curve import training_seconds
from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.tokens.shards import read_metadata
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison
from pipelines.compare.designs import Designs, design_words
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, Table
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.style import COLOURS, GREY, plain
from pipelines.report.verdicts import find
from pipelines.report.wording import number, signed

DIFFERENCES = ("− its model's design", "− baseline", "− larger baseline")
HEAD = [
    *("arm", "data", "κ", "design", "bound", *DIFFERENCES),
    *("use of z", "recovery", "waste", "valid", "spread", "noise"),
    *("parameters", "FLOPs/token", "tokens/s in training"),
]
ROW_INCHES = 0.34  # of a design in the picture


def section(analysis: Analysis) -> Section | None:
    if not analysis.designs:
        return None
    rows = [row(arm, group, analysis) for group in analysis.designs for arm in group.arms]
    alt = "What each design of the latent gains over that of its model, one dot per seed"
    picture = Picture("designs", drawn(analysis.designs), alt)
    blocks = [Table(HEAD, rows), picture]
    return Section("designs", "Designs of the latent, side by side", blocks)


def row(arm: Arm, group: Designs, analysis: Analysis) -> list[str]:
    use = analysis.uses[arm.name]
    own = next((c for c in group.others if c.arm is arm), None)
    plain_one, larger = (find(analysis.comparisons, arm, plain=each) for each in (True, False))
    return [
        arm.name,
        arm.run.data,
        arm.first.kappa,
        design_words(arm),
        str(arm.bound()),
        *map(cell, (own, plain_one, larger)),
        number(use.use.mean),
        number(use.recovery, 2),
        number(use.waste.mean),
        *of_generations(arm),
        f"{arm.parameters:,}",
        training_flops(arm),
        f"{fmean(arm.trained_tokens / training_seconds(r.curve) for r in arm.runs):,.0f}",
    ]


def cell(comparison: Comparison | None) -> str:
    if comparison is None:
        return "–"
    return f"{signed(comparison.mean)}, {comparison.qualified_verdict}"


def training_flops(arm: Arm) -> str:
    """Of training, per token of a full context; unknown without the data's vocabulary."""
    folder, config = tokens_folder(arm.run.data), arm.first.config
    if config is None or not (folder / "metadata.json").exists():
        return "–"
    return f"{flops_per_token(config, read_metadata(folder).vocab_size).total / 1e6:.2f} M"


def of_generations(arm: Arm) -> list[str]:
    """On the target task: valid (fresh z), spread (fresh → pinned z), noise (pinned z)."""
    if not (scores := arm_scores(arm)):
        return ["–"] * 3
    spread = f"{number(scores['spread_fresh'], 1)} → {number(scores['spread_pinned'], 1)}"
    return [number(scores["valid_fresh"], 2), spread, number(scores["noise_pinned"], 2)]


def drawn(groups: list[Designs]) -> Figure:
    """A panel for each group: the bound of the model's own design minus that of each seed."""
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
