"""The results of a run as MLflow's metrics: of its evaluation, and of its suite.

All of them have the tokens that the model was trained on as x; ``bound/`` is what arms are compared
by. Counts are parameters or tags, so that the charts show bounds.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pipelines.artifacts import results
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.results import (
    BudgetFigures,
    Evaluation,
    SuiteResults,
    TaskResult,
    TaskScore,
)
from pipelines.tracking.datasets import dataset, held_out, of_data
from pipelines.tracking.log import RunLog
from pipelines.tracking.models import model_name, of_checkpoint

OF_THE_RUN = ("parameters", "trained_tokens")
OF_THE_MEASUREMENT = ("documents", "tokens", "bytes", "tokens_per_second")
COUNTS = (*OF_THE_RUN, *OF_THE_MEASUREMENT, "collapsed")


def bounds(measured: BudgetFigures | Evaluation) -> dict[str, float]:
    """The bound that arms are compared by, under one name for all of them."""
    units = {unit: getattr(measured, unit) for unit in results.UNITS}
    return {unit: figures.bound.mean for unit, figures in units.items() if figures}


def log_data(log: RunLog, manifest: Manifest) -> None:
    for each in of_data(manifest.run["data"], manifest.data_hash):
        log.log_input(each)


def log_evaluation(
    log: RunLog, manifest: Manifest, evaluation: Evaluation, at: int | None = None
) -> None:
    """At every budget, each with the logged model of its checkpoint; ``at`` as in log_figures."""
    log_data(log, manifest)
    counts = {key: getattr(evaluation, key) for key in COUNTS}
    log.log_params({key: str(counts[key]) for key in OF_THE_RUN})
    tags = {
        f"eval.{key}": str(counts[key]) for key in OF_THE_MEASUREMENT if counts[key] is not None
    }
    if evaluation.collapsed is not None:
        tags["collapsed"] = "yes" if evaluation.collapsed else "no"
    log.tags(tags)
    held = (held_out(manifest.run["data"]), manifest.data_hash)
    for budget in evaluation.budgets[:-1]:
        model = of_checkpoint(manifest, log.record.params, budget.tokens, budget.listed)
        log.log_model(model)
        log.log_figures("bound", bounds(budget), budget.tokens, (model["name"], *held), at)
        figures = {
            name: value
            for name, value in results.flat(budget).items()
            if name.startswith(tuple(results.UNITS))
        }
        log.log_figures("eval", figures, budget.tokens, (), at)
    tokens = evaluation.trained_tokens
    log.log_model(of_checkpoint(manifest, log.record.params, tokens))
    of = (model_name(manifest.run_name), *held)
    log.log_figures("bound", bounds(evaluation), tokens, of, at)
    figures = {key: v for key, v in results.flat(evaluation).items() if key not in COUNTS}
    log.log_figures("eval", figures, tokens, of, at)


def log_suite(
    log: RunLog, manifest: Manifest, suite: SuiteResults, tokens: int, at: int | None = None
) -> None:
    """At every budget; ``tokens``: that the whole run was trained on."""
    log_data(log, manifest)
    log.tag("suite", f"{suite.suite}, {suite.harness}, seed {suite.seed}")
    for name in suite.tasks:
        log.log_input(benchmark(name, suite))
    params = log.record.params
    checkpoints: list[tuple[dict[str, Any], int, Mapping[str, TaskScore]]] = [
        (of_checkpoint(manifest, params, each.tokens, each.listed), each.tokens, each.tasks)
        for each in suite.budgets[:-1]
    ]
    checkpoints.append((of_checkpoint(manifest, params, tokens), tokens, suite.tasks))
    for model, trained, tasks in checkpoints:
        log.log_model(model)
        for name, score in tasks.items():
            on = benchmark(name, suite)
            of = (model["name"], on["name"], on["digest"])
            log.log_figures("suite", scores(name, score), trained, of, at)
            if isinstance(score, TaskResult):
                for key, each in score.sampled_figures(name).items():
                    log.log_figures("suite", scores(key, each), trained, of, at)


def benchmark(name: str, suite: SuiteResults) -> dict[str, str]:
    """The dataset of a task, as this version of the harness reads it."""
    task = suite.tasks.get(name) or TaskResult(0.0)
    content = f"{task.task} {task.version} {task.documents} {suite.harness} {suite.limit}"
    if task.sources:  # of our own data they are in the version
        content += f" {task.sources} {task.notes}"
    digest = sha256(content.encode()).hexdigest()[:16]
    return dataset(name, digest, task.task or name, "eval", {"documents": task.documents})


def scores(task: str, score: TaskScore) -> dict[str, float]:
    return {task: score.value} | ({f"{task}_se": score.se} if score.se is not None else {})
