"""Figure 4 of the paper beside this experiment: sequences generated with fresh and with pinned z.

Fresh z: every sequence of a group has a z of its own (blue in the paper). Pinned z: the sequences
of a group share one (green), so what stays the same among them is what z decides.
"""

from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path

from ftmodel.target_scores import Scores, score_groups
from ftmodel.target_task import PROMPT
from pipelines.arms import Measured

SAMPLES = Path("docs/paper/figure4_samples.txt")
PINNED_GROUPS, GROUP_SIZE = 2, 5  # shown, as in the paper


def number(value: float, decimals: int) -> str:
    return "–" if isnan(value) else f"{value:.{decimals}f}"


@dataclass
class Panel:
    """Sequences as Figure 4 shows them, with the scores of all that were generated."""

    fresh: list[list[str]]  # one group
    pinned: list[list[str]]  # two groups; none for a baseline, which has no z
    fresh_scores: Scores
    pinned_scores: Scores | None

    @property
    def ratio(self) -> float:
        """Spread of the target with pinned z over that with fresh z; 1 if z decides nothing."""
        if self.pinned_scores is None or not self.fresh_scores.spread:
            return nan
        return self.pinned_scores.spread / self.fresh_scores.spread

    @property
    def summary(self) -> str:
        """The scores in one line; of spread, with fresh and then with pinned z."""
        fresh, pinned = self.fresh_scores, self.pinned_scores
        if pinned is None:
            return f"valid {fresh.valid:.2f}  ·  spread {number(fresh.spread, 1)}"
        return (
            f"valid {fresh.valid:.2f}  ·  spread {number(fresh.spread, 1)} → "
            f"{number(pinned.spread, 1)}  ·  pinned noise {number(pinned.noise, 2)}"
        )


@dataclass
class Row:
    """A run of this experiment and, where the paper has samples of its κ, the paper's."""

    run: Measured
    ours: Panel
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
    return {
        kappa: Panel(found[:1], found[1:], score_groups(found[:1]), score_groups(found[1:]))
        for kappa, found in groups.items()
    }


def our_panel(run: Measured) -> Panel:
    groups, pinned = run.details["groups"], run.metrics.get("pinned")
    return Panel(
        [groups["fresh"][0][:GROUP_SIZE]],
        [group[:GROUP_SIZE] for group in groups.get("pinned", [])[:PINNED_GROUPS]],
        Scores(**run.metrics["fresh"]),
        Scores(**pinned) if pinned else None,
    )


def figure4_rows(runs: list[Measured], paper: dict[float, Panel]) -> list[Row]:
    """A row for each run on the target task: baselines first, then by κ."""
    rows = []
    for one in runs:
        if one.on_target:
            kappa = -1.0 if one.run.kappa_bits is None else one.run.kappa_bits
            rows.append((kappa, Row(one, our_panel(one), paper.get(kappa))))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def character_kinds(sequence: str) -> list[str]:
    """What each character is: prompt, blank, noise, target (the prompt's letter) or other."""
    kinds = {"_": "blank", "!": "noise", sequence[0]: "target"}
    body = sequence[PROMPT:]
    return ["prompt"] * PROMPT + [kinds.get(character, "other") for character in body]
