"""Tables 1 to 3 of the paper: benchmarks of baselines and Free Transformers, final and over the
last third of training.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import hypot, log, nan

import torch

from ftmodel.analysis.differences import DocumentError, document_error
from pipelines.artifacts.result_files import in_last_third, late_tokens
from pipelines.artifacts.results import Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.artifacts.suite_results import (
    SampledScore,
    Sampling,
    SuiteResults,
    TaskResult,
    TaskScore,
    Varied,
    sampled_key,
)
from pipelines.compare.arms import Arm, OverSeeds, families, grouped, over_seeds
from pipelines.compare.comparison import Comparison, from_plain
from pipelines.host.files import ROOT
from pipelines.report.wording import listed

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


# Compares the arms of a family with its plain baseline on the benchmarks of their suite.
#
# Differences count by the rule of ftmodel/analysis/differences.py, with the spread over seeds
# pooled over the family on the same task.

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


# Several answers to each prompt of a benchmark: pass@k and the share of distinct answers, by what
# varies between them.
#
# pass@k is compared like any benchmark (table.py): a Free Transformer's answers, drawn in one way,
# with the plain baseline's, drawn at the same temperature. A random prefix varies as z does.
# Nothing else is judged: the share of distinct answers is neither good nor bad, the ways within an
# arm share their models, and all answers of a baseline's likeliest tokens would be the same one.


@dataclass(frozen=True)
class Row:
    """An arm's answers, drawn in one way."""

    arm: Arm
    sampling: Sampling
    pass_at: list[Score]  # for each k
    distinct: Score

    @property
    def varies(self) -> str:
        varied = self.sampling.varied.replace("_", " ")
        return varied.replace("z", "prefix") if self.arm.baseline else varied


@dataclass(frozen=True)
class SampledTask:
    """A benchmark with several answers to each prompt."""

    task: Task
    samples: int  # n
    ks: list[int]
    rows: list[Row]

    @property
    def compared(self) -> list[Score]:
        """Scores with a verdict."""
        return [score for row in self.rows for score in row.pass_at if score.compared]


def sampled_tasks(family: Benchmarks) -> list[SampledTask]:
    """Tasks with several answers, without ways that some seed lacks or has fewer answers for."""
    tables = []
    for task in family.tasks:
        known = [each for run in family.runs for each in sampled(run, task)]
        if known:
            n, ks = known[0].samples, [*known[0].pass_at]
            ways = dict.fromkeys(each.sampling for each in known)
            rows = [row for way in ways for row in way_rows(family.arms, task, way, n, ks)]
            order = [*Varied]
            rows.sort(
                key=lambda row: (family.arms.index(row.arm), order.index(row.sampling.varied))
            )
            tables.append(SampledTask(task, n, ks, rows))
    return tables


def way_rows(arms: list[Arm], task: Task, sampling: Sampling, n: int, ks: list[int]) -> list[Row]:
    """A row for each arm whose answers were drawn in this way."""
    figures = [*(f"pass_at_{k}" for k in ks), "distinct"]
    *by_k, distinct = (as_benchmark(arms, task, sampling, n, figure) for figure in figures)
    return [
        Row(
            arm,
            sampling,
            [each[arm.name] for each in by_k],
            replace(distinct[arm.name], difference=None),
        )
        for arm in arms
        if arm.name in distinct and (arm.samples_noise or sampling.varied is Varied.tokens)
    ]


def as_benchmark(
    arms: list[Arm], task: Task, sampling: Sampling, n: int, figure: str
) -> dict[str, Score]:
    """Benchmark scores, by arm, of a figure of answers drawn in this way; baselines vary tokens."""
    tokens = replace(sampling, varied=Varied.tokens)
    scored = []
    for arm in arms:
        way = sampling if arm.samples_noise else tokens
        scored.append(Arm(arm.name, [scored_by(run, task, way, n, figure) for run in arm.runs]))
    return scores(scored, task, late=False)


def scored_by(run: RunResults, task: Task, sampling: Sampling, n: int, figure: str) -> RunResults:
    """The run with the figure as its score on the task, or with no score if it lacks the figure."""
    suite, tasks = suite_of(run), {}
    for each in sampled(run, task):
        if each.sampling == sampling and each.samples == n and figure in each.figures():
            score = each.figures()[figure]
            tasks[task.key] = replace(suite.tasks[task.key], value=score.value, se=score.se)
    documents = run.suite_scores.get(sampled_key(task.key, sampling, figure), [])
    return replace(run, suite=replace(suite, tasks=tasks), suite_scores={task.key: documents})


def sampled(run: RunResults, task: Task) -> list[SampledScore]:
    result = suite_of(run).tasks.get(task.key)
    return result.sampled if result else []
