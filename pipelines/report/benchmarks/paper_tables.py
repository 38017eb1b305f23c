"""Tables 1 to 3 of the paper: benchmarks of baselines and Free Transformers, final and over the
last third of training.
"""

import csv
import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from math import log
from pathlib import Path

FOLDER = Path("docs/paper")
FILES = {  # name, parameters of the baseline and trained tokens, by file
    "table1_1.5b_47b.csv": ("Table 1", 1.5e9, 47e9),
    "table2_8b_200b.csv": ("Table 2", 8e9, 200e9),
    "table3_8b_1t.csv": ("Table 3", 8e9, 1e12),
}
FREE = re.compile(r"ft_(?P<kappa>[\d/]+)bit(?P<when>_final|_last_third)?")
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
    """Scores by the paper's name of the benchmark."""

    name: str
    parameters: float
    tokens: float
    final: dict[str, PaperScores]
    last_third: dict[str, PaperScores]  # of Table 3; empty for the others

    def scores(self, late: bool) -> dict[str, PaperScores]:
        return self.last_third if late else self.final

    def kappas(self, late: bool) -> set[float]:
        return {kappa for scores in self.scores(late).values() for kappa in scores.free}

    def distance(self, parameters: float, tokens: float) -> float:
        """From a model and its training, by the factors between them."""
        return abs(log(self.parameters / parameters)) + abs(log(self.tokens / tokens))


def read_tables(folder: Path = FOLDER) -> list[PaperTable]:
    return [read_table(folder / file, *about) for file, about in FILES.items()]


def read_table(path: Path, name: str, parameters: float, tokens: float) -> PaperTable:
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    late = "baseline_last_third" in rows[0]
    return PaperTable(
        name,
        parameters,
        tokens,
        {row["benchmark"]: read_scores(row, "_final" if late else "") for row in rows},
        {row["benchmark"]: read_scores(row, "_last_third") for row in rows} if late else {},
    )


def read_scores(row: dict[str, str], when: str) -> PaperScores:
    columns = {
        float(Fraction(match["kappa"])): column
        for column in row
        if (match := FREE.fullmatch(column)) and (match["when"] or "") == when
    }
    return PaperScores(
        row["metric"],
        float(row[f"baseline{when}"]),
        {kappa: float(row[column]) for kappa, column in columns.items()},
        {kappa: float(row["rel" + column.removeprefix("ft")]) for kappa, column in columns.items()},
    )


def nearest(
    tables: Collection[PaperTable],
    parameters: float,
    tokens: float,
    kappas: Collection[float],
    tasks: Collection[str],
    late: bool = False,
) -> PaperTable | None:
    """Of the tables that have one of these κ and one of these tasks (the paper's names), the one
    nearest in size and training.
    """
    fitting = [
        table
        for table in tables
        if table.kappas(late) & set(kappas) and table.scores(late).keys() & set(tasks)
    ]
    return min(fitting, key=lambda table: table.distance(parameters, tokens), default=None)
