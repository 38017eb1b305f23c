"""Tables 1 to 3 of the paper: benchmarks of baselines and Free Transformers, final and over the
last third of training.
"""

import csv
import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from math import log

from pipelines.common.atomic_files import ROOT

FOLDER = ROOT / "docs/paper"
FILES = {  # name, parameters of the baseline and trained tokens, by file
    "table1_1.5b_47b.csv": ("Table 1", 1.5e9, 47e9),
    "table2_8b_200b.csv": ("Table 2", 8e9, 200e9),
    "table3_8b_1t.csv": ("Table 3", 8e9, 1e12),
}
NAMES = {"race_high": "race.high", "race_middle": "race.middle"}  # a key of params.yaml has no dots


def paper_name(task: str) -> str:
    """The benchmark's name in the paper's tables; ``task`` is its key in params.yaml."""
    return NAMES.get(task, task)


@dataclass(frozen=True)
class PaperScores:
    """Scores on one benchmark, of the baseline and by κ in bits per token."""

    metric: str
    baseline: float
    free: dict[float, float]
    relative: dict[float, float]  # percent above the baseline, as printed


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, with scores by its names of the benchmarks."""

    name: str
    parameters: float
    tokens: float
    late: bool  # means over the last third of training, which Table 3 has beside final ones
    scores: dict[str, PaperScores]

    @property
    def kappas(self) -> set[float]:
        return {kappa for scores in self.scores.values() for kappa in scores.free}

    def distance(self, parameters: float, tokens: float) -> float:
        """Distance from a model and its training, by the factors between their sizes."""
        return abs(log(self.parameters / parameters)) + abs(log(self.tokens / tokens))


def read_tables() -> list[PaperTable]:
    tables = []
    for name, about in FILES.items():
        with open(FOLDER / name, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for when in ("", "_final", "_last_third"):
            if f"baseline{when}" in rows[0]:
                scores = {row["benchmark"]: read_scores(row, when) for row in rows}
                tables.append(PaperTable(*about, when == "_last_third", scores))
    return tables


def read_scores(row: dict[str, str], when: str) -> PaperScores:
    """Read the scores in a row from the columns whose names end in ``when``."""
    found = (re.fullmatch(rf"ft(_([\d/]+)bit{when})", column) for column in row)
    columns = {float(Fraction(match[2])): match[1] for match in found if match}
    return PaperScores(
        row["metric"],
        float(row[f"baseline{when}"]),
        *(
            {kappa: float(row[kind + column]) for kappa, column in columns.items()}
            for kind in ("ft", "rel")
        ),
    )


def nearest(
    tables: Collection[PaperTable],
    parameters: float,
    tokens: float,
    kappas: Collection[float],
    tasks: Collection[str],
    late: bool = False,
) -> PaperTable | None:
    """The table nearest in size and training that has one of ``kappas`` and one of ``tasks``."""
    fitting = [
        table
        for table in tables
        if table.late == late and table.kappas & {*kappas} and table.scores.keys() & {*tasks}
    ]
    return min(fitting, key=lambda table: table.distance(parameters, tokens), default=None)
