"""Compares the arms of a family with its plain baseline on the benchmarks of their suite.

Differences count by the rule of ftmodel/analysis/differences.py, with the spread over seeds pooled
over the family on the same task.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import hypot, nan

import torch

from ftmodel.analysis.differences import DocumentError, document_error
from pipelines.artifacts.budget_results import in_last_third, late_tokens
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.artifacts.suite_results import SuiteResults, TaskResult, TaskScore
from pipelines.compare.arms import Arm, OverSeeds, families, grouped, over_seeds
from pipelines.compare.comparison import Comparison, from_plain
from pipelines.report.benchmarks.paper_tables import paper_name
from pipelines.report.wording import listed

# the same where scores may be compared
CONDITIONS = ("task", "metric", "shots", "version", "documents", "sources")


@dataclass(frozen=True)
class Task(TaskResult):
    """A benchmark as the first run was scored on it."""

    key: str = ""  # in params.yaml

    @property
    def name(self) -> str:
        return paper_name(self.key)


@dataclass(frozen=True)
class Score:
    """An arm's score on a benchmark, over its seeds."""

    value: OverSeeds
    difference: Comparison | None  # from the plain baseline
    higher_is_better: bool

    @property
    def relative(self) -> float | None:
        """Percent above the baseline, as the paper prints it; None if the baseline's score is 0."""
        if self.difference is None or not (baseline := self.value.mean - self.difference.mean):
            return None
        return 100 * self.difference.mean / abs(baseline)

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `no difference` or `not known`; empty for the baseline itself."""
        if self.difference is None:
            return ""
        found = self.difference.verdict
        if found not in ("higher", "lower"):
            return found
        return "better" if (found == "higher") == self.higher_is_better else "worse"

    @property
    def counts(self) -> bool:
        return self.verdict in ("better", "worse")

    @property
    def compared(self) -> bool:
        return self.verdict not in ("", "not known")


Scores = dict[str, dict[str, Score]]  # by key of the task, then by arm


@dataclass(frozen=True)
class Benchmarks:
    """Scores of arms that may be compared: the same data, model and token budget."""

    arms: list[Arm]
    tasks: list[Task]
    final: Scores
    last_third: Scores  # means over the last third of training; empty without budgets

    @property
    def runs(self) -> list[RunResults]:
        return [run for arm in self.arms for run in arm.runs]

    @property
    def baseline(self) -> Arm | None:
        """The plain baseline."""
        return next((arm for arm in self.arms if arm.plain), None)

    def compared(self, late: bool = False) -> list[Score]:
        """Scores with a verdict."""
        tables = self.last_third if late else self.final
        return [each for by_arm in tables.values() for each in by_arm.values() if each.compared]

    @property
    def skipped(self) -> dict[str, list[str]]:
        """Reasons by the paper's name of the task; names the runs if only some skipped it."""
        reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
        for run in self.runs:
            for key, reason in suite_of(run).skipped.items():
                reasons[key, reason].append(run.name)
        by_name: dict[str, list[str]] = defaultdict(list)
        for (key, reason), names in reasons.items():
            only = "" if len(names) == len(self.runs) else f" ({listed(names)})"
            by_name[paper_name(key)].append(reason + only)
        return by_name


def benchmarks(arms: list[Arm]) -> list[Benchmarks]:
    """Benchmarks of each family, with the arms all of whose runs were scored on a suite."""
    scored = [arm for arm in arms if all(run.suite is not None for run in arm.runs)]
    return [of_family(family) for family in families(scored)]


def of_family(arms: list[Arm]) -> Benchmarks:
    tasks: dict[str, Task] = {}
    for run in (run for arm in arms for run in arm.runs):
        for key, result in suite_of(run).tasks.items():
            tasks.setdefault(key, Task(**vars(result), key=key))
    final = {key: scores(arms, task, late=False) for key, task in tasks.items()}
    late = {key: scores(arms, task, late=True) for key, task in tasks.items()}
    late = {key: by_arm for key, by_arm in late.items() if by_arm}
    return Benchmarks(arms, list(tasks.values()), final, late)


def suite_of(run: RunResults) -> SuiteResults:
    assert run.suite is not None, f"{run.name} was scored on no suite"
    return run.suite


def alike(run: RunResults, task: Task) -> bool:
    """Whether the run was scored on the task, and in the same way as the others."""
    result = suite_of(run).tasks.get(task.key)
    return result is not None and all(
        getattr(result, name) == getattr(task, name) for name in CONDITIONS
    )


def scores(arms: list[Arm], task: Task, late: bool) -> dict[str, Score]:
    """Scores by arm. ``late``: means over the last third, compared if over the same budgets."""
    values: dict[str, list[Estimate]] = {}
    for arm in (arm for arm in arms if all(alike(run, task) for run in arm.runs)):
        final = [score_of(suite_of(run).tasks[task.key]) for run in arm.runs]
        of_seeds = late_values(arm, task) if late else final
        if len(of_seeds) == len(arm.runs):
            values[arm.name] = of_seeds
    error = partial(score_error, task=task, values=values, late=late)
    differences: dict[str, Comparison] = {}
    if not late:
        differences = from_plain(arms, values, task.metric, error)
    else:
        groups = grouped(arms, lambda arm: late_tokens(suite_of(run).budgets for run in arm.runs))
        for group in (group for budgets, group in groups.items() if budgets):
            differences |= from_plain(group, values, task.metric, error)
    return {
        name: Score(over_seeds(each), differences.get(name), task.higher_is_better)
        for name, each in values.items()
    }


def score_error(
    arm: Arm, other: Arm, task: Task, values: dict[str, list[Estimate]], late: bool
) -> DocumentError:
    """Error over documents of the difference between two arms' scores, ``values``: document by
    document, if the scores of each are stored. Otherwise both errors are added as if the documents
    were different, which is rather too large: what is hard for one arm is hard for the other, and a
    seed's noise on a document counts in the error over seeds as well.
    """
    stored = [[run.suite_scores.get(task.key, []) for run in each.runs] for each in (arm, other)]
    if late or any(len(scores) != task.documents for of_arm in stored for scores in of_arm):
        errors = [over_seeds(values[each.name]).se for each in (arm, other)]
        return DocumentError(hypot(*errors), task.documents - 1)
    return document_error(*(torch.tensor(each, dtype=torch.float64) for each in stored))


def score_of(score: TaskScore) -> Estimate:
    return Estimate(score.value, nan if score.se is None else score.se)


def late_values(arm: Arm, task: Task) -> list[Estimate]:
    """Mean over the last third for each seed with several budgets; one alone is the final model.

    The same documents score all budgets, so the error of their mean is at most the mean error.
    """
    return [
        over_seeds([score_of(budget.tasks[task.key]) for budget in late])
        for late in (in_last_third(suite_of(run).budgets) for run in arm.runs)
        if len(late) > 1 and all(task.key in budget.tasks for budget in late)
    ]
