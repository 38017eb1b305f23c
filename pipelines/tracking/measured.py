"""What evaluation and suite have measured, as MLflow shows it.

All figures have the tokens that the model was trained on as x; ``bound/`` is what arms are compared
by. Counts are parameters or tags, so that the charts show bounds.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from pipelines.artifacts import results
from pipelines.artifacts.paths import results_folder
from pipelines.artifacts.results import (
    BudgetFigures,
    Details,
    EvaluationResult,
    SuiteResults,
    TaskResult,
    TaskScore,
)
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.tracking.datasets import dataset, held_out_name
from pipelines.tracking.journal import read_journal
from pipelines.tracking.tracked import Tracked

OF_THE_RUN = ("parameters", "trained_tokens")
OF_THE_MEASUREMENT = ("documents", "tokens", "bytes", "tokens_per_second")
COUNTS = (*OF_THE_RUN, *OF_THE_MEASUREMENT, "collapsed")


def read_tracked(journal: Path) -> Tracked:
    """All that lies on disk of a run; raises UserError if its journal is not readable.

    Results count if they are of this very training.
    """
    run = read_journal(journal)
    folder = results_folder(run.experiment, run.run_name)
    try:
        if (path := folder / "details.json").exists():
            manifest = results.read(path, Details, "evaluate").manifest
            if manifest and manifest.tracking_key == run.key:
                path = folder / "evaluation.json"
                add_evaluation(run, results.read(path, EvaluationResult, "evaluate"), changed(path))
                run.files.append(folder / "details.json")
        if (path := folder / "suite.json").exists():
            suite = results.read(path, SuiteResults, "suite")
            if suite.manifest and suite.manifest.tracking_key == run.key:
                add_suite(run, suite, changed(path))
                run.files += [path, folder / "suite_samples"]
    except UserError as error:
        say(f"not in MLflow: {error}")
    return run


def changed(path: Path) -> int:
    """When a file was written, ms since 1970."""
    return int(path.stat().st_mtime * 1000)


def bounds(measured: BudgetFigures | EvaluationResult) -> dict[str, float]:
    """The bound that arms are compared by, under one name for all of them."""
    units = {unit: getattr(measured, unit) for unit in results.UNITS}
    return {unit: figures.bound.mean for unit, figures in units.items() if figures}


def add_evaluation(run: Tracked, evaluation: EvaluationResult, at: int) -> None:
    """At every budget, each with the logged model of its checkpoint."""
    counts = {key: getattr(evaluation, key) for key in COUNTS}
    run.params = {key: str(counts[key]) for key in OF_THE_RUN} | run.params
    run.tags |= {f"eval.{k}": str(counts[k]) for k in OF_THE_MEASUREMENT if counts[k] is not None}
    if evaluation.calibration:
        run.tags["eval.converged"] = "yes" if evaluation.calibration.converged else "no"
    if evaluation.collapsed is not None:
        run.tags["collapsed"] = "yes" if evaluation.collapsed else "no"
    held = (held_out_name(run.params["data"]), run.params["data_hash"])
    for budget in evaluation.budgets[:-1]:
        name = run.add_model(budget.tokens, budget.listed)
        run.add("bound", bounds(budget), budget.tokens, at, (name, *held))
        figures = results.flat(budget)
        figures = {k: v for k, v in figures.items() if k.startswith(tuple(results.UNITS))}
        run.add("eval", figures, budget.tokens, at)
    tokens = evaluation.trained_tokens
    of = (run.add_model(tokens), *held)
    run.add("bound", bounds(evaluation), tokens, at, of)
    figures = {key: v for key, v in results.flat(evaluation).items() if key not in COUNTS}
    run.add("eval", figures, tokens, at, of)


def add_suite(run: Tracked, suite: SuiteResults, at: int) -> None:
    """At every budget."""
    run.tags["suite"] = f"{suite.suite}, {suite.harness}, seed {suite.seed}"
    run.inputs = run.inputs + [benchmark(name, suite) for name in suite.tasks]
    checkpoints: list[tuple[int, int | None, Mapping[str, TaskScore]]] = [
        *((each.tokens, each.listed, each.tasks) for each in suite.budgets[:-1]),
        (trained_tokens(run), None, suite.tasks),
    ]
    for tokens, listed, tasks in checkpoints:
        model = run.add_model(tokens, listed)
        for name, score in tasks.items():
            on = benchmark(name, suite)
            of = (model, on["name"], on["digest"])
            run.add("suite", score_figures(name, score), tokens, at, of)
            if isinstance(score, TaskResult):
                for key, each in score.sampled_figures(name).items():
                    run.add("suite", score_figures(key, each), tokens, at, of)


def trained_tokens(run: Tracked) -> int:
    """Where its curve ends."""
    return max(point.step for point in run.points if point.key.startswith("train_by_tokens/"))


def benchmark(name: str, suite: SuiteResults) -> dict[str, str]:
    """The dataset of a task, as this version of the harness reads it."""
    task = suite.tasks.get(name) or TaskResult(0.0)
    content = f"{task.task} {task.version} {task.documents} {suite.harness} {suite.limit}"
    if task.sources:  # of our own data they are in the version
        content += f" {task.sources}"
    digest = sha256(content.encode()).hexdigest()[:16]
    return dataset(name, digest, task.task or name, "eval", {"documents": task.documents})


def score_figures(task: str, score: TaskScore) -> dict[str, float]:
    return {task: score.value} | ({f"{task}_se": score.se} if score.se is not None else {})
