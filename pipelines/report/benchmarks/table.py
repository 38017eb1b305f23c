"""The arms of a family on the benchmarks of their suite, each beside the plain baseline.

What counts as a difference is as in compare.py. The same documents score both arms: where the score
of each is stored, the error of a difference is that of the differences document by document, else
the two errors are added as if the documents were different ones: rather too large an error, since
what is hard for one arm is hard for the other.
"""

from dataclasses import dataclass
from math import hypot, nan
from statistics import fmean
from typing import Any

import torch

from ftmodel.analysis.statistics import mean_and_error
from pipelines.artifacts.results import Estimate, Measured
from pipelines.report.arms import Arm, families, over_seeds
from pipelines.report.benchmarks.paper_tables import paper_name
from pipelines.report.comparison import Comparison, contrast, controls

ALIKE = ("task", "metric", "shots", "version", "documents")  # where scores may be compared


@dataclass(frozen=True)
class Task:
    """A benchmark as it was run."""

    key: str  # in params.yaml
    task: str  # its name in the harness, or of ours
    metric: str
    shots: int
    documents: int
    version: str
    higher_is_better: bool

    @property
    def name(self) -> str:
        return paper_name(self.key)


@dataclass(frozen=True)
class Score:
    """Of an arm on a benchmark: mean and spread of its seeds."""

    value: Estimate
    baseline: float | None  # of the plain one
    difference: Comparison | None  # from it
    higher_is_better: bool

    @property
    def relative(self) -> float | None:
        """Percent above the baseline, as the paper prints it; None if that has a score of 0."""
        if self.difference is None or not self.baseline:
            return None
        return 100 * self.difference.mean / abs(self.baseline)

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `no difference` or `not known`; empty for the baseline itself."""
        if self.difference is None:
            return ""
        words = {"higher": "better", "lower": "worse"}
        if not self.higher_is_better:
            words = {"higher": "worse", "lower": "better"}
        return words.get(self.difference.verdict, self.difference.verdict)

    @property
    def counts(self) -> bool:
        return self.verdict in ("better", "worse")


Scores = dict[str, dict[str, Score]]  # by key of the task, then by arm


@dataclass(frozen=True)
class Benchmarks:
    """Of arms that may be compared: the same data, model and token budget."""

    arms: list[Arm]
    tasks: list[Task]
    final: Scores
    last_third: Scores  # means over the last third of training; empty without budgets

    @property
    def runs(self) -> list[Measured]:
        return [one for arm in self.arms for one in arm.runs]

    @property
    def baseline(self) -> Arm | None:
        """The plain one."""
        plain = (arm for arm in self.arms if arm.baseline and not arm.run.extra_blocks)
        return next(plain, None)

    def compared(self, late: bool = False) -> list[Score]:
        """Those with a verdict."""
        scores = self.last_third if late else self.final
        found = [score for by_arm in scores.values() for score in by_arm.values()]
        return [one for one in found if one.verdict not in ("", "not known")]


def benchmarks(arms: list[Arm]) -> list[Benchmarks]:
    """Of each family with arms all of whose runs were scored on a suite."""
    scored = [arm for arm in arms if all(one.suite is not None for one in arm.runs)]
    return [of_family(family) for family in families(scored)]


def of_family(arms: list[Arm]) -> Benchmarks:
    tasks: dict[str, Task] = {}
    for entries in (suite(one)["tasks"] for arm in arms for one in arm.runs):
        for key, entry in entries.items():
            about = {name: entry[name] for name in (*ALIKE, "higher_is_better")}
            tasks.setdefault(key, Task(key, **about))
    final = {key: scores(arms, task, late=False) for key, task in tasks.items()}
    late = {key: scores(arms, task, late=True) for key, task in tasks.items()}
    late = {key: by_arm for key, by_arm in late.items() if by_arm}
    return Benchmarks(arms, list(tasks.values()), final, late)


def suite(one: Measured) -> dict[str, Any]:
    assert one.suite is not None, f"{one.name} was scored on no suite"
    return one.suite


def alike(one: Measured, task: Task) -> bool:
    """Whether the run was scored on the task, and in the way of the others."""
    entry = suite(one)["tasks"].get(task.key)
    return bool(entry) and all(entry[name] == getattr(task, name) for name in ALIKE)


def scores(arms: list[Arm], task: Task, late: bool) -> dict[str, Score]:
    """By arm; ``late``: the means over the last third."""
    figures = late_values if late else values
    found = {
        arm.name: figures(arm, task) for arm in arms if all(alike(one, task) for one in arm.runs)
    }
    present = [arm for arm in arms if len(found.get(arm.name, [])) == len(arm.runs)]
    made = {}
    for arm in present:
        baseline = difference = None
        for other in controls(arm, present):
            if other.run.extra_blocks or (late and late_tokens(arm) != late_tokens(other)):
                continue
            mine, others = found[arm.name], found[other.name]
            stored = None if late else paired_error(arm, other, task)
            error = hypot(over_seeds(mine).se, over_seeds(others).se) if stored is None else stored
            means = [one.mean for one in mine], [one.mean for one in others]
            baseline = over_seeds(others).mean
            difference = contrast(arm, other, task.metric, *means, error)
        made[arm.name] = Score(
            over_seeds(found[arm.name]), baseline, difference, task.higher_is_better
        )
    return made


def values(arm: Arm, task: Task) -> list[Estimate]:
    """Of each seed."""
    return [estimate(suite(one)["tasks"][task.key]) for one in arm.runs]


def estimate(entry: dict[str, Any]) -> Estimate:
    return Estimate(entry["value"], nan if entry["se"] is None else entry["se"])


def late_values(arm: Arm, task: Task) -> list[Estimate]:
    """Of each seed that has several budgets in the last third: one alone is the final model.

    The same documents score all of them, so that the error of their mean is at most the mean error.
    """
    found = [[e["tasks"].get(task.key) for e in late_entries(one)] for one in arm.runs]
    return [
        Estimate(fmean(e["value"] for e in entries), fmean(estimate(e).se for e in entries))
        for entries in found
        if len(entries) > 1 and all(entries)
    ]


def late_entries(one: Measured) -> list[dict[str, Any]]:
    """Of the budgets in the last third of training."""
    found = suite(one)
    return found["budgets"][-found["last_third"]["n"] :] if "last_third" in found else []


def late_tokens(arm: Arm) -> list[int]:
    return [entry["tokens"] for entry in late_entries(arm.first)]


def paired_error(arm: Arm, other: Arm, task: Task) -> float | None:
    """Standard error of the difference document by document, if the scores of each are stored."""
    stored = [[one.suite_scores.get(task.key, []) for one in a.runs] for a in (arm, other)]
    if any(len(found) != task.documents for of_arm in stored for found in of_arm):
        return None
    mine, others = (torch.tensor(found, dtype=torch.float64).mean(0) for found in stored)
    return mean_and_error(mine - others)["se"]
