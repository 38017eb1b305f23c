"""Figure 4 of the paper beside this experiment: sequences generated with fresh and with pinned z
(blue and green in the paper).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from ftmodel.analysis.statistics import clopper_pearson
from ftmodel.synthetic.target import Scores, score_groups
from pipelines.artifacts.curve import training_seconds
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.host.files import ROOT
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import (
    MISSING,
    Block,
    Cell,
    Entries,
    Entry,
    Name,
    Picture,
    Samples,
    Text,
    explained,
    fold,
    heading,
    side_by_side,
    table,
)
from pipelines.report.html import character_kinds
from pipelines.report.sections import titled
from pipelines.report.sections.target import target_figures
from pipelines.report.style import Style
from pipelines.report.wording import between, number

SAMPLES = ROOT / "docs/paper/figure4_samples.txt"
PINNED_GROUPS, GROUP_SIZE = 2, 5  # shown, as in the paper
KINDS = {  # of characters in a generated sequence
    "prompt": "#555555",
    "blank": "#c4c8cc",
    "noise": "#c2410c",
    "target": "#1d4ed8",
    "other": "#111111",
}
FRESH, PINNED = "#3b82f6", "#16a34a"  # boxes: blue and green, as in the paper
TargetScores = dict[str, float | None]  # of generated groups, by name


def target_scores(fresh: Scores, pinned: Scores | None) -> TargetScores:
    """Shares of valid sequences, standard deviations of the target's place in characters with their
    ratio (1 if z decides nothing), and overlaps of noise: see ftmodel/synthetic/target.py. None if
    unknown.
    """
    other = pinned or Scores(nan, nan, nan, 0, 0)
    scores = {
        "valid_fresh": fresh.valid,
        "valid_pinned": other.valid,
        "spread_fresh": fresh.spread,
        "spread_pinned": other.spread,
        "ratio": other.spread / fresh.spread if fresh.spread else nan,
        "noise_fresh": fresh.noise,
        "noise_pinned": other.noise,
    }
    return {name: None if isnan(score) else score for name, score in scores.items()}


def mean_scores(seeds: list[TargetScores]) -> TargetScores:
    """Each score over the runs that have it; ``ratio`` is the mean of ratios."""
    known = {name: [s for seed in seeds if (s := seed[name]) is not None] for name in seeds[0]}
    return {name: fmean(scores) if scores else None for name, scores in known.items()}


@dataclass(frozen=True)
class Panel:
    """Sequences as Figure 4 shows them, with the scores of all that were generated."""

    fresh: list[str]
    pinned: list[list[str]]  # two groups; none for a baseline, which has no z
    scores: TargetScores
    groups: str  # how many groups of how many sequences were scored, fresh and pinned
    sequences: int  # with fresh z, for the scores of one model; 0 for means over seeds
    note: str = ""  # which seeds all this is from

    @property
    def boxes(self) -> list[tuple[str, list[str]]]:
        """Groups with the kind of their z."""
        return [("fresh", self.fresh), *(("pinned", group) for group in self.pinned)]

    @property
    def summary(self) -> str:
        """The scores in one line; spread is with fresh, then with pinned z."""
        valid, spread = (self.scores[f"{name}_fresh"] for name in ("valid", "spread"))
        parts = [f"valid {number(valid, 2)}", f"spread {number(spread, 1)}"]
        if self.pinned:
            parts[1] += f" → {number(self.scores['spread_pinned'], 1)}"
            parts.append(f"pinned noise {number(self.scores['noise_pinned'], 2)}")
        return "  ·  ".join(parts + [self.note] * bool(self.note))


@dataclass(frozen=True)
class Row:
    """An arm of this experiment and, where the paper has samples of its κ, the paper's."""

    arm: Arm
    ours: Panel  # sequences of the first seed, means over all of them
    paper: Panel | None

    @property
    def panels(self) -> list[Panel]:
        return [self.ours, self.paper] if self.paper else [self.ours]


@titled("What does z decide? Figure 4 of the paper, side by side")
def figure4(analysis: Analysis) -> Sequence[Block]:
    rows = figure4_rows(analysis.arms, read_paper())
    blocks: list[Block] = []
    for row in rows:
        named = zip(("this experiment", "the paper"), row.panels, strict=False)
        columns = [
            [
                Text(f"{source}: {panel.summary}"),
                *(Samples(kind, "\n".join(group)) for kind, group in panel.boxes),
            ]
            for source, panel in named
        ]
        blocks += [analysis.heading(row.arm, row.arm.title), side_by_side(columns)]
    if rows:
        alt = "Generated sequences, fresh z in blue and pinned z in green, beside the paper's"
        blocks += [
            heading("Scores"),
            *table(line for row in rows for line in score_rows(row)),
            *explained("Scores of Figure 4"),
            fold("The same as a picture", [Picture("figure4", draw_figure4(rows), alt)]),
        ]
    return blocks


def score_rows(row: Row) -> list[Entries]:
    """Rows of the arm, of its seeds if there are several, and of the paper."""
    seeds = [Cell(str(seed)) for seed in row.arm.seeds]
    if len(seeds) == 1:
        rows = [score_row(row, Name(row.arm.name), seeds[0], row.ours)]
    else:
        rows = [score_row(row, Name(row.arm.name), f"mean of {len(seeds)}", row.ours)]
        for seed, run in zip(seeds, row.arm.runs, strict=True):
            fresh, pinned = run_scores(run)
            sequences = fresh.groups * fresh.group_size
            scores = target_scores(fresh, pinned)
            panel = replace(row.ours, scores=scores, sequences=sequences)
            rows.append(score_row(row, Name(row.arm.name, below=True), seed, panel))
    if row.paper:
        rows.append(score_row(row, Name("the paper", below=True), MISSING, row.paper))
    return rows


def score_row(row: Row, name: Name, seed: Entry, panel: Panel) -> Entries:
    scores, valid = panel.scores, panel.scores["valid_fresh"]
    interval = ""
    if valid is not None and panel.sequences:
        ends = clopper_pearson(round(valid * panel.sequences), panel.sequences)
        interval = f"({between(ends, 2)})"
    return {
        "arm": name,
        "κ": Cell(row.arm.first.kappa),
        "seed": seed,
        "groups × size": Cell(panel.groups),
        "valid (95 %)": Cell(number(valid, 2), interval),
        "spread, fresh z": Cell(number(scores["spread_fresh"], 1)),
        "spread, pinned z": Cell(number(scores["spread_pinned"], 1)),
        "pinned ÷ fresh": Cell(number(scores["ratio"], 2)),
        "noise, fresh z": Cell(number(scores["noise_fresh"], 2)),
        "noise, pinned z": Cell(number(scores["noise_pinned"], 2)),
    }


def read_paper() -> dict[float, Panel]:
    """The paper's panels by κ in bits per token; one fresh and two pinned groups each."""
    groups: dict[float, list[list[str]]] = {}
    for line in SAMPLES.read_text(encoding="utf-8").splitlines():
        if line.startswith("kappa_bits"):
            current = groups[float(line.split()[1])] = [[]]
        elif not line:
            current.append([])
        elif not line.startswith("#"):
            current[-1].append(line)
    panels = {}
    for kappa, (first, *others) in groups.items():
        scores = score_groups([first]), score_groups(others)
        panels[kappa] = Panel(first, others, target_scores(*scores), in_groups(*scores), len(first))
    return panels


def in_groups(fresh: Scores, pinned: Scores | None) -> str:
    return f"{fresh.groups}{f' + {pinned.groups}' if pinned else ''} × {fresh.group_size}"


def run_scores(run: RunResults) -> tuple[Scores, Scores | None]:
    """Scores of a run on the target task, with fresh and with pinned z."""
    assert run.evaluation.fresh, f"{run.name} was not scored on the target task"
    return run.evaluation.fresh, run.evaluation.pinned


def scores_by_seed(arm: Arm) -> list[TargetScores]:
    return [target_scores(*run_scores(run)) for run in arm.runs]


def arm_scores(arm: Arm) -> TargetScores:
    """Mean scores of the arm's seeds; {} for other data than the target task."""
    return mean_scores(scores_by_seed(arm)) if arm.first.on_target else {}


def our_panel(arm: Arm) -> Panel:
    """The sequences of the arm's first seed with the mean scores of all its seeds."""
    groups = arm.first.details.groups
    assert groups, f"{arm.first.name} has no generated groups"
    fresh, pinned = run_scores(arm.first)
    several = len(arm.runs) > 1
    return Panel(
        groups["fresh"][0][:GROUP_SIZE],
        [group[:GROUP_SIZE] for group in groups.get("pinned", [])[:PINNED_GROUPS]],
        arm_scores(arm),
        in_groups(fresh, pinned),
        0 if several else fresh.groups * fresh.group_size,
        f"means of {len(arm.runs)} seeds; seed {arm.run.seed} shown" if several else "",
    )


def figure4_rows(arms: list[Arm], paper: dict[float, Panel]) -> list[Row]:
    """A row for each arm on the target task: baselines first, then by κ."""
    kappas = {arm.name: -1.0 if (kappa := arm.run.kappa_bits) is None else kappa for arm in arms}
    shown = sorted((arm for arm in arms if arm.first.on_target), key=lambda arm: kappas[arm.name])
    return [Row(arm, our_panel(arm), paper.get(kappas[arm.name])) for arm in shown]


def figure4_csv(analysis: Analysis) -> list[dict[str, Any]]:
    """A row for each run, then the paper's, at full precision; none without the target task.
    Shares, characters, nats per token, bits, seconds of training steps; None: not measured.
    """
    paper = read_paper()
    ours = [
        {
            "arm": row.arm.name,
            "run": run.name,
            "kappa_bits": run.run.kappa_bits,
            "seed": run.run.seed,
            **scores,
            "groups": run_scores(run)[0].groups,
            "group_size": run_scores(run)[0].group_size,
            **target_figures(run),
            "parameters": run.evaluation.parameters,
            "trained_tokens": run.evaluation.trained_tokens,
            "training_seconds": training_seconds(run.curve),
        }
        for row in figure4_rows(analysis.arms, paper)
        for run, scores in zip(row.arm.runs, scores_by_seed(row.arm), strict=True)
    ]
    theirs = [
        {"arm": "the paper", "kappa_bits": kappa, **panel.scores} for kappa, panel in paper.items()
    ]
    return ours + theirs if ours else []


# Figure 4 is laid out in inches from the upper left corner.
PAGE, COLUMNS, BOX = 13.95, (0.25, 7.1), 6.6
LINE, FONT, HEADER = 0.19, 11.3, 1.25
KEY = (
    "Blue: each sequence has its own z.  Green: five sequences share one z, or under a learned "
    "prior the same random numbers for z.\n"
    "Scores (spread: blue → green) are over all groups generated; the paper's, over those shown."
)


def draw_figure4(rows: list[Row]) -> Figure:
    """Draw each arm's sequences beside the paper's: fresh z boxed in blue, pinned z in green."""
    heights = [0.85 + sum(len(group) * LINE + 0.2 for _, group in row.ours.boxes) for row in rows]
    height = HEADER + sum(heights)
    figure = Figure(figsize=(PAGE, height), dpi=115)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, PAGE), ylim=(height, 0))
    axes.set_axis_off()
    for left, head in zip(COLUMNS, ("This experiment", "The paper (Figure 4)"), strict=True):
        axes.text(left, 0.35, head, fontsize=15, fontweight="bold")
    axes.text(COLUMNS[0], 0.9, KEY, fontsize=13, color="#374151")
    top = HEADER - 0.15
    for row, row_height in zip(rows, heights, strict=True):
        axes.text(COLUMNS[0], top + 0.25, row.arm.title, fontsize=12.5, fontweight="bold")
        for left, panel in zip(COLUMNS, row.panels, strict=False):
            draw_panel(axes, left, top + 0.4, panel)
        top += row_height
    return figure


def draw_panel(axes: Axes, left: float, top: float, panel: Panel) -> None:
    for kind, group in panel.boxes:
        height, edge = len(group) * LINE + 0.08, {"fresh": FRESH, "pinned": PINNED}[kind]
        corners = "round,pad=0,rounding_size=0.06"
        axes.add_patch(
            FancyBboxPatch((left, top), BOX, height, corners, fc="white", ec=edge, lw=1.8)
        )
        for i, sequence in enumerate(group):
            draw_sequence(axes, left + 0.12, top + 0.04 + (i + 0.5) * LINE, sequence)
        top += height + 0.12
    axes.text(left, top + 0.12, panel.summary, fontsize=10.5, color="#374151")


def draw_sequence(axes: Axes, x: float, y: float, sequence: str) -> None:
    """Draw a line of text for each kind of character, laid over each other by the fixed width."""
    kinds = character_kinds(sequence)
    font: Style = {"family": "DejaVu Sans Mono", "size": FONT, "va": "center_baseline"}
    for kind, colour in KINDS.items():
        masked = (c if k == kind else " " for c, k in zip(sequence, kinds, strict=True))
        weight = "bold" if kind in ("target", "noise") else "normal"
        axes.text(x, y, "".join(masked), weight=weight, color=colour, **font)
