"""Figure 4 of the paper beside this experiment: sequences generated with fresh and with pinned z.

Fresh z: every sequence of a group has a z of its own (blue in the paper). Pinned z: the sequences
of a group share one (green), so what stays the same among them is what z decides.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from ftmodel.synthetic.target_scores import Scores, score_groups
from ftmodel.synthetic.target_task import PROMPT
from pipelines.report.arms import Arm

SAMPLES = Path("docs/paper/figure4_samples.txt")
PINNED_GROUPS, GROUP_SIZE = 2, 5  # shown, as in the paper


def number(value: float, decimals: int) -> str:
    return "–" if isnan(value) else f"{value:.{decimals}f}"


@dataclass(frozen=True)
class Figures:
    """Scores of generated groups, of a run or means over seeds; NaN where there is none to have.

    Shares of valid sequences, standard deviations of the target's place in characters, overlaps
    of noise: see target_scores.py.
    """

    valid_fresh: float
    valid_pinned: float
    spread_fresh: float
    spread_pinned: float
    ratio: float  # of the spreads, pinned over fresh; 1 if z decides nothing
    noise_fresh: float
    noise_pinned: float


def figures_of(fresh: Scores, pinned: Scores | None) -> Figures:
    other = pinned or Scores(nan, nan, nan, 0, 0)
    ratio = other.spread / fresh.spread if fresh.spread else nan
    return Figures(
        *(fresh.valid, other.valid, fresh.spread, other.spread, ratio, fresh.noise, other.noise)
    )


def mean_figures(found: list[Figures]) -> Figures:
    """Means over runs, each figure over those that have it; ``ratio`` is the mean of ratios."""
    rows = map(astuple, found)
    columns = ([v for v in column if not isnan(v)] for column in zip(*rows, strict=True))
    return Figures(*(fmean(column) if column else nan for column in columns))


@dataclass(frozen=True)
class Panel:
    """Sequences as Figure 4 shows them, with the scores of all that were generated."""

    fresh: list[list[str]]  # one group
    pinned: list[list[str]]  # two groups; none for a baseline, which has no z
    figures: Figures
    groups: str  # how many groups of how many sequences were scored, fresh and pinned
    note: str = ""  # of which seeds all this is

    @property
    def summary(self) -> str:
        """The scores in one line; of spread, with fresh and then with pinned z."""
        found = self.figures
        parts = [f"valid {found.valid_fresh:.2f}", f"spread {number(found.spread_fresh, 1)}"]
        if self.pinned:
            parts[1] += f" → {number(found.spread_pinned, 1)}"
            parts.append(f"pinned noise {number(found.noise_pinned, 2)}")
        return "  ·  ".join(parts + [self.note] * bool(self.note))


@dataclass(frozen=True)
class Row:
    """An arm of this experiment and, where the paper has samples of its κ, the paper's."""

    arm: Arm
    ours: Panel  # sequences of the first seed, means over all of them
    seeds: list[Figures]  # of each run
    paper: Panel | None


def read_paper(path: Path = SAMPLES) -> dict[float, Panel]:
    """The paper's panels by κ in bits per token; one fresh and two pinned groups each."""
    groups: dict[float, list[list[str]]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("kappa_bits"):
            current = groups[float(line.split()[1])] = [[]]
        elif not line:
            current.append([])
        elif not line.startswith("#"):
            current[-1].append(line)
    return {kappa: paper_panel(found[:1], found[1:]) for kappa, found in groups.items()}


def paper_panel(fresh: list[list[str]], pinned: list[list[str]]) -> Panel:
    scores = score_groups(fresh), score_groups(pinned)
    return Panel(fresh, pinned, figures_of(*scores), groups_in_words(*scores))


def groups_in_words(fresh: Scores, pinned: Scores | None) -> str:
    return f"{fresh.groups}{f' + {pinned.groups}' if pinned else ''} × {fresh.group_size}"


def scores_of(found: Mapping[str, Any] | None) -> Scores | None:
    """Scores as evaluation left them, where what cannot be measured may be null."""
    if found is None:
        return None
    known: dict[str, Any] = {key: nan if value is None else value for key, value in found.items()}
    return Scores(**known)


def run_scores(metrics: Mapping[str, Any]) -> tuple[Scores, Scores | None]:
    """Scores of a run on the target task, with fresh and with pinned z."""
    fresh = scores_of(metrics["fresh"])
    assert fresh is not None
    return fresh, scores_of(metrics.get("pinned"))


def figures_by_seed(arm: Arm) -> list[Figures]:
    return [figures_of(*run_scores(one.metrics)) for one in arm.runs]


def our_panel(arm: Arm) -> Panel:
    """The sequences of the arm's first seed with the mean scores of all its seeds."""
    groups = arm.first.details["groups"]
    several = f"means of {len(arm.runs)} seeds; seed {arm.run.seed} shown"
    return Panel(
        [groups["fresh"][0][:GROUP_SIZE]],
        [group[:GROUP_SIZE] for group in groups.get("pinned", [])[:PINNED_GROUPS]],
        mean_figures(figures_by_seed(arm)),
        groups_in_words(*run_scores(arm.first.metrics)),
        several if len(arm.runs) > 1 else "",
    )


def figure4_rows(arms: list[Arm], paper: dict[float, Panel]) -> list[Row]:
    """A row for each arm on the target task: baselines first, then by κ."""
    rows = []
    for arm in arms:
        if arm.first.on_target:
            kappa = -1.0 if arm.run.kappa_bits is None else arm.run.kappa_bits
            row = Row(arm, our_panel(arm), figures_by_seed(arm), paper.get(kappa))
            rows.append((kappa, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def character_kinds(sequence: str) -> list[str]:
    """What each character is: prompt, blank, noise, target (the prompt's letter) or other."""
    kinds = {"_": "blank", "!": "noise", sequence[0]: "target"}
    body = sequence[PROMPT:]
    return ["prompt"] * PROMPT + [kinds.get(character, "other") for character in body]
