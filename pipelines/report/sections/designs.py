"""Designs of the latent side by side: what each gains over that of its model."""

from collections.abc import Iterable
from statistics import fmean

from matplotlib.figure import Figure

from ftmodel.analysis.differences import LEVEL
from ftmodel.costs import flops_per_token
from pipelines.artifacts.curve import training_seconds
from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.tokens.shards import read_metadata
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison
from pipelines.compare.designs import Designs, in_words
from pipelines.compare.use_of_z import UseOfZ, uses_of_z
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, Table, Text, explained
from pipelines.report.sections.figure4 import figures_by_seed, mean_figures
from pipelines.report.style import COLOURS, GREY, plain
from pipelines.report.wording import count, number, signed

DIFFERENCES = ("− its model's design", "− baseline", "− larger baseline")
HEAD = [
    *("arm", "data", "κ", "design", "bound", *DIFFERENCES),
    *("use of z", "recovery", "waste", "valid", "spread", "noise"),
    *("parameters", "FLOPs/token", "tokens/s in training"),
]
ROW = 0.34  # inches of a design in the picture


TEXT = """\
Free Transformers that differ only in the design of their latent. Differences are in bits per
byte of text and in bits per token of a process, with the verdict of the rule for differences,
over all seeds; “a bound is not tight” says that the verdict would change if either bound were
lowered by its estimated looseness. Valid, spread (fresh → pinned z) and noise are of sequences
of the target task. In the picture a dot is a seed and a dash their mean: how far the bound lies
below the mean bound of the model’s own design (grey). FLOPs are those of the matrix products of
training at a full context; speeds are comparable where all runs had their machine to themselves.
A lower bound is not a better latent: it may only mean that the decoder ignores z, so that the
model behaves like its baseline."""


def section(analysis: Analysis) -> Section | None:
    if not analysis.designs:
        return None
    uses = {use.arm.name: use for use in uses_of_z(analysis.arms)}
    rows = [
        row(arm, group, uses[arm.name], analysis.comparisons)
        for group in analysis.designs
        for arm in group.arms
    ]
    alt = "What each design of the latent gains over that of its model, one dot per seed"
    blocks = [
        explained(TEXT, "the-rule-for-differences"),
        Text(several_tests(rows)),
        Table(HEAD, rows),
        Picture("designs", drawn(analysis.designs), alt),
    ]
    return Section("designs", "Designs of the latent, side by side", blocks)


def row(arm: Arm, group: Designs, use: UseOfZ, against: Iterable[Comparison]) -> list[str]:
    controls = [c for c in against if c.arm.name == arm.name]
    return [
        arm.name,
        arm.run.data,
        arm.first.kappa,
        in_words(arm),
        str(arm.bound()),
        *verdict(c for c in group.others if c.arm is arm),
        *verdict(c for c in controls if c.other.plain),
        *verdict(c for c in controls if not c.other.plain),
        f"{use.use.mean:.4f}".replace("-", "−"),
        "–" if use.recovery is None else f"{use.recovery:.2f}".replace("-", "−"),
        f"{use.waste.mean:.4f}".replace("-", "−"),
        *of_generations(arm),
        f"{arm.parameters:,}",
        training_flops(arm),
        f"{fmean(arm.trained_tokens / training_seconds(r.curve) for r in arm.runs):,.0f}",
    ]


def several_tests(rows: list[list[str]]) -> str:
    """How many differences the table has, and how many would count by chance."""
    columns = [HEAD.index(name) for name in DIFFERENCES]
    tests = sum(row[column] != "–" for row in rows for column in columns)
    return (
        f"The table has {count(tests, 'difference')}, each tested at {100 * LEVEL:.0f} %: between "
        f"equal models about {tests * LEVEL:.2g} of them would count by chance."
    )


def training_flops(arm: Arm) -> str:
    """Of training, per token of a full context; unknown without the data's vocabulary."""
    folder, config = tokens_folder(arm.run.data), arm.first.config
    if config is None or not (folder / "metadata.json").exists():
        return "–"
    return f"{flops_per_token(config, read_metadata(folder).vocab_size).total / 1e6:.2f} M"


def verdict(comparisons: Iterable[Comparison]) -> list[str]:
    """A cell: the first difference, and the rule's word for it."""
    for c in comparisons:
        return [f"{signed(c.mean)}, {c.qualified_verdict}"]
    return ["–"]


def of_generations(arm: Arm) -> list[str]:
    """On the target task, means over seeds: valid with fresh z, spread with fresh and pinned z,
    noise with pinned z.
    """
    if not arm.first.on_target:
        return ["–"] * 3
    scores = mean_figures(figures_by_seed(arm))
    spread = f"{number(scores.spread_fresh, 1)} → {number(scores.spread_pinned, 1)}"
    return [number(scores.valid_fresh, 2), spread, number(scores.noise_pinned, 2)]


def drawn(groups: list[Designs]) -> Figure:
    """A panel for each group: the bound of the model's own design minus that of each seed."""
    heights = [1.2 + ROW * len(group.arms) for group in groups]
    figure = Figure(figsize=(9, sum(heights)))
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        unit, level = group.own.unit, group.own.bound().mean
        for place, arm in enumerate(group.arms):
            gains = [level - bound for bound in arm.bounds()]
            colour = GREY if arm is group.own else COLOURS[1]
            axes.plot(gains, [place] * len(gains), "o", ms=5, color=colour, alpha=0.7)
            axes.plot([fmean(gains)], [place], "|", ms=14, color=colour)
        axes.axvline(0, lw=0.8, color=GREY)
        axes.set_yticks(range(len(group.arms)), [in_words(arm) for arm in group.arms])
        axes.set_ylim(len(group.arms) - 0.4, -0.6)
        title = (
            f"Gain over the model's own design, {group.own.run.data}, κ = {group.own.first.kappa}"
        )
        plain(axes, title, f"{UNITS[unit]}; to the right the bound is lower", "")
    figure.tight_layout()
    return figure
