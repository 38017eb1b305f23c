"""Several answers to each prompt of a benchmark: pass@k and the share of distinct answers, by what
varies between them.

pass@k is compared like any benchmark (table.py): a Free Transformer's answers, drawn in one way,
with the plain baseline's, drawn at the same temperature. A random prefix varies as z does. Nothing
else is judged: the share of distinct answers is neither good nor bad, the ways within an arm share
their models, and all answers of a baseline's likeliest tokens would be the same one.
"""

from dataclasses import dataclass, replace

from pipelines.artifacts.run_results import RunResults
from pipelines.artifacts.suite_results import SampledScore, Sampling, Varied, sampled_key
from pipelines.compare.arms import Arm
from pipelines.report.benchmarks.table import Benchmarks, Score, Task, scores, suite_of


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
