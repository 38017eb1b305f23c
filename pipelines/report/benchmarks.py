"""Benchmark scores: what the paper prints, and what an experiment's arms have.

Tables 1 to 3 of the paper have scores of baselines and Free Transformers, for final models and for
the last third of training. Here, a family's arms are compared with its plain baseline, task by
task, by the rule of ftmodel/analysis/differences.py. Spreads over seeds are pooled over the family
on the same task.

pass@k is compared in the same way: a Free Transformer's answers, drawn in one way, with the plain
baseline's, drawn at the same temperature. A random prefix varies as z does. Nothing else is judged.
The share of distinct answers is neither good nor bad, the ways within an arm share their models,
and all answers of a baseline's likeliest tokens would be the same one.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from math import hypot, log, nan

import torch

from ftmodel.analysis.differences import (
    DocumentError,
    agreement_margin,
    document_error,
    exact_margin,
)
from ftmodel.analysis.statistics import cluster_totals, wilson
from pipelines.artifacts.result_files import in_last_third, late_tokens
from pipelines.artifacts.results import Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.artifacts.suite_results import (
    CLUSTER,
    GOLD,
    SampledScore,
    Sampling,
    SuiteResults,
    TaskResult,
    TaskScore,
    Varied,
    document_key,
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
    for file_name, (name, parameters, tokens) in FILES.items():
        with open(FOLDER / file_name, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for when in ("", "_final", "_last_third"):
            if f"baseline{when}" in rows[0]:
                scores = {row["benchmark"]: read_scores(row, when) for row in rows}
                late = when == "_last_third"
                tables.append(PaperTable(name, parameters, tokens, late, scores))
    return tables


def read_scores(row: dict[str, str], when: str) -> PaperScores:
    """Read the scores in a row from the columns whose names end in ``when``."""
    found = (re.fullmatch(rf"ft(_([\d/]+)bit{when})", column) for column in row)
    columns = {float(Fraction(match[2])): match[1] for match in found if match}
    return PaperScores(
        metric=row["metric"],
        baseline=float(row[f"baseline{when}"]),
        free={kappa: float(row[f"ft{column}"]) for kappa, column in columns.items()},
        relative={kappa: float(row[f"rel{column}"]) for kappa, column in columns.items()},
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


# two runs' scores may be compared where these are the same
CONDITIONS = ("task", "metric", "shots", "version", "documents", "clusters", "sources")


@dataclass(frozen=True)
class Task(TaskResult):
    """A benchmark as the first run was scored on it."""

    key: str = ""  # in params.yaml

    @property
    def name(self) -> str:
        return paper_name(self.key)


@dataclass(frozen=True)
class SeedScore:
    """A run's score on a task: a benchmark's own, or pass@k of answers drawn in one way."""

    value: Estimate
    documents: list[float]  # the score of each document; empty if not stored
    clusters: list[float] = field(default_factory=list)  # of documents; empty: each its own


Measured = dict[str, list[SeedScore]]  # scores of each seed, by arm


@dataclass(frozen=True)
class Score:
    """An arm's score on a benchmark, over its seeds."""

    value: OverSeeds
    difference: Comparison | None  # from the plain baseline
    higher_is_better: bool
    interval: tuple[float, float] | None = None  # 95 %, of a rate of passed documents

    @property
    def relative(self) -> float | None:
        """Percent above the baseline, as the paper prints it; None if the baseline's score is 0."""
        if self.difference is None or not (baseline := self.value.mean - self.difference.mean):
            return None
        return 100 * self.difference.mean / abs(baseline)

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `not decided` or `not known`; empty for the baseline itself."""
        if self.difference is None:
            return ""
        found = self.difference.verdict
        if found not in ("higher", "lower"):
            return found
        return "better" if (found == "higher") == self.higher_is_better else "worse"

    @property
    def counts(self) -> bool:
        """Whether several seeds say that the arm is better, or worse."""
        return self.differs and not (self.difference and self.difference.one_seed)

    @property
    def differs(self) -> bool:
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
    gold: Scores  # bits per byte of the right answers; of tasks that have them
    final: Scores
    last_third: Scores  # means over the last third of training; empty without budgets
    adjusted_level: float = -1.0  # the largest p-value that survives all tests of the report

    @property
    def runs(self) -> list[RunResults]:
        return [run for arm in self.arms for run in arm.runs]

    @property
    def baseline(self) -> Arm | None:
        """The plain baseline."""
        return next((arm for arm in self.arms if arm.plain), None)

    @property
    def compared(self) -> list[Score]:
        """Scores with a verdict."""
        tables = self.gold, self.final, self.last_third
        by_arms = chain.from_iterable(scores.values() for scores in tables)
        return [each for by_arm in by_arms for each in by_arm.values() if each.compared]

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
    return [family_benchmarks(family) for family in families(scored)]


def family_benchmarks(arms: list[Arm]) -> Benchmarks:
    tasks: dict[str, Task] = {}
    for run in (run for arm in arms for run in arm.runs):
        for key, result in suite_of(run).tasks.items():
            tasks.setdefault(key, Task(**vars(result), key=key))
    gold = {key: gold_scores(arms, task) for key, task in tasks.items() if task.gold_bpb}
    final = {key: final_scores(arms, task) for key, task in tasks.items()}
    late = {key: late_scores(arms, task) for key, task in tasks.items()}
    late = {key: by_arm for key, by_arm in late.items() if by_arm}
    return Benchmarks(arms, list(tasks.values()), gold, final, late)


def suite_of(run: RunResults) -> SuiteResults:
    assert run.suite is not None, f"{run.name} was scored on no suite"
    return run.suite


def scored_alike(run: RunResults, task: Task) -> bool:
    """Whether the run was scored on the task, and in the same way as the others."""
    result = suite_of(run).tasks.get(task.key)
    return result is not None and all(
        getattr(result, name) == getattr(task, name) for name in CONDITIONS
    )


def measured(
    arms: list[Arm], task: Task, score: Callable[[Arm, RunResults], SeedScore | None]
) -> Measured:
    """The scores of arms all of whose runs have one and were scored alike."""
    found: Measured = {}
    for arm in (arm for arm in arms if all(scored_alike(run, task) for run in arm.runs)):
        seeds = [each for run in arm.runs if (each := score(arm, run))]
        if len(seeds) == len(arm.runs):
            found[arm.name] = seeds
    return found


def final_scores(arms: list[Arm], task: Task) -> dict[str, Score]:
    def final(arm: Arm, run: RunResults) -> SeedScore:
        score = suite_of(run).tasks[task.key]
        return SeedScore(estimate_of(score), *documents_of(run, task.key, task.key))

    return compare_scores(arms, task, measured(arms, task, final))


def documents_of(run: RunResults, key: str, task: str) -> tuple[list[float], list[float]]:
    """Scores of documents under this key, and their clusters; empty if not stored."""
    stored = run.suite_scores
    return stored.get(key, []), stored.get(document_key(task, CLUSTER), [])


def gold_scores(arms: list[Arm], task: Task) -> dict[str, Score]:
    def gold(arm: Arm, run: RunResults) -> SeedScore | None:
        score = suite_of(run).tasks[task.key].gold_bpb
        if score is None:
            return None
        documents = documents_of(run, document_key(task.key, GOLD), task.key)
        return SeedScore(estimate_of(score), *documents)

    by_bits = replace(task, metric="bits_per_byte", higher_is_better=False)
    return compare_scores(arms, by_bits, measured(arms, task, gold))


def late_scores(arms: list[Arm], task: Task) -> dict[str, Score]:
    """Means over the last third, compared between arms with the same budgets there. A single budget
    is the final model, so it is left out. The same documents score all budgets, so the error of
    their mean is at most the mean error.
    """

    def late(arm: Arm, run: RunResults) -> SeedScore | None:
        budgets = in_last_third(suite_of(run).budgets)
        if len(budgets) < 2 or any(task.key not in budget.tasks for budget in budgets):
            return None
        return SeedScore(over_seeds([estimate_of(each.tasks[task.key]) for each in budgets]), [])

    found = measured(arms, task, late)
    by_budgets = grouped(arms, lambda arm: late_tokens(suite_of(run).budgets for run in arm.runs))
    scores: dict[str, Score] = {}
    for budgets, group in by_budgets.items():
        names = {arm.name for arm in group}
        in_group = {name: seeds for name, seeds in found.items() if name in names}
        scores |= compare_scores(group if budgets else [], task, in_group)
    return {name: scores[name] for name in found}


def compare_scores(arms: list[Arm], task: Task, found: Measured) -> dict[str, Score]:
    """Score each arm that was measured, and compare ``arms`` with their plain baseline."""
    values = {name: [seed.value for seed in seeds] for name, seeds in found.items()}

    def error(arm: Arm, other: Arm) -> DocumentError:
        return score_error(task, found[arm.name], found[other.name])

    differences = from_plain(arms, values, task.metric, error)
    return {
        name: Score(
            over_seeds(values[name]),
            differences.get(name),
            task.higher_is_better,
            rate_interval(task, found[name]),
        )
        for name in found
    }


def rate_interval(task: Task, seeds: list[SeedScore]) -> tuple[float, float] | None:
    """The 95 % interval of a rate: of documents that pass or fail, or, as an error of 0 says
    nothing, of scores between 0 and 1 that are all the same. None for other scores.
    """
    scores = [score for seed in seeds for score in seed.documents]
    value = over_seeds([seed.value for seed in seeds])
    passes = len(scores) == task.documents * len(seeds) and all(score in (0, 1) for score in scores)
    passes = passes and task.clusters is None  # the error over clusters is shown then
    if passes or (value.se == 0 and 0 <= value.mean <= 1):
        return wilson(value.mean, task.clusters or task.documents)
    return None


def score_error(task: Task, seeds: list[SeedScore], others: list[SeedScore]) -> DocumentError:
    """Error over documents of the difference between two arms' scores: document by document, if the
    scores of each are stored. Otherwise both errors are added as if the documents were different,
    which is rather too large: what is hard for one arm is hard for the other, and a seed's noise on
    a document counts in the error over seeds as well.
    """
    if any(len(seed.documents) != task.documents for seed in [*seeds, *others]):
        errors = [over_seeds([seed.value for seed in each]).se for each in (seeds, others)]
        return DocumentError(hypot(*errors), (task.clusters or task.documents) - 1)
    first, second = (
        torch.tensor([seed.documents for seed in each], dtype=torch.float64)
        for each in (seeds, others)
    )
    if seeds[0].clusters:
        clusters = torch.tensor(seeds[0].clusters)
        exact = exact_margin(first, second)
        (first, sizes), (second, _) = (cluster_totals(each, clusters) for each in (first, second))
        exact = max(exact, agreement_margin(len(sizes))) if exact else 0.0
        return replace(document_error(first, second, sizes), exact=exact)
    return document_error(first, second)


def estimate_of(score: TaskScore) -> Estimate:
    return Estimate(score.value, nan if score.se is None else score.se)


@dataclass(frozen=True)
class SampledArm:
    """An arm's answers, drawn in one way."""

    arm: Arm
    sampling: Sampling
    pass_at: dict[int, Score]  # by k
    distinct: OverSeeds  # share of answers

    @property
    def varies(self) -> str:
        varied = self.sampling.varied.replace("_", " ")
        return varied.replace("z", "prefix") if self.arm.baseline else varied


@dataclass(frozen=True)
class SampledTask:
    """A benchmark with several answers to each prompt."""

    task: Task
    samples: int  # n, answers to a prompt
    ks: list[int]
    rows: list[SampledArm]

    @property
    def compared(self) -> list[Score]:
        """Scores with a verdict."""
        return [score for row in self.rows for score in row.pass_at.values() if score.compared]


def sampled_tasks(family: Benchmarks) -> list[SampledTask]:
    """Tasks with several answers, without ways that some seed lacks or has fewer answers for."""
    tables = []
    for task in family.tasks:
        known = [each for run in family.runs for each in sampled_scores(run, task)]
        if known:
            n, ks = known[0].samples, [*known[0].pass_at]
            ways = dict.fromkeys(each.sampling for each in known)
            rows = [row for way in ways for row in sampled_arms(family.arms, task, way, n, ks)]
            order = [*Varied]
            rows.sort(
                key=lambda row: (family.arms.index(row.arm), order.index(row.sampling.varied))
            )
            tables.append(SampledTask(task, n, ks, rows))
    return tables


def sampled_arms(
    arms: list[Arm], task: Task, sampling: Sampling, n: int, ks: list[int]
) -> list[SampledArm]:
    """The arms whose answers were drawn in this way; a plain baseline can only vary tokens."""
    pass_at = {
        k: compare_scores(arms, task, sampled(arms, task, sampling, n, f"pass_at_{k}")) for k in ks
    }
    distinct = sampled(arms, task, sampling, n, "distinct")
    return [
        SampledArm(
            arm,
            sampling,
            {k: by_arm[arm.name] for k, by_arm in pass_at.items()},
            over_seeds([seed.value for seed in distinct[arm.name]]),
        )
        for arm in arms
        if arm.name in distinct and (arm.samples_noise or sampling.varied is Varied.tokens)
    ]


def sampled(arms: list[Arm], task: Task, sampling: Sampling, n: int, figure: str) -> Measured:
    """A figure of n answers drawn in this way, or of a plain baseline's at the same temperature."""

    def score(arm: Arm, run: RunResults) -> SeedScore | None:
        way = sampling if arm.samples_noise else replace(sampling, varied=Varied.tokens)
        documents = documents_of(run, sampled_key(task.key, way, figure), task.key)
        for each in sampled_scores(run, task):
            if each.sampling == way and each.samples == n and figure in each.figures():
                return SeedScore(estimate_of(each.figures()[figure]), *documents)
        return None

    return measured(arms, task, score)


def sampled_scores(run: RunResults, task: Task) -> list[SampledScore]:
    result = suite_of(run).tasks.get(task.key)
    return result.sampled if result else []
