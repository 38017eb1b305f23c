"""What evaluation and suite have measured, as MLflow shows it.

MLflow draws a chart for each metric, in the order of their names: first ``bound/``, by which arms
are compared, then the training curve, then the other figures to compare runs by, against the tokens
that the model was trained on. All else in an evaluation is in tags, which make no charts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from statistics import fmean, stdev

from mlflow.utils.validation import MAX_TAG_VAL_LENGTH as MAX_TAG

from pipelines.artifacts import results
from pipelines.artifacts.result_files import plain_data, read_json
from pipelines.artifacts.results import BudgetFigures, Details, EvaluationResult
from pipelines.artifacts.suite_results import SuiteResults, TaskResult, TaskScore
from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.files import SPLITS, dumps, results_folder
from pipelines.tracking.journal import Origin, Point, Tracked, dataset, read_journal, split_name

PARAMS = ("parameters", "trained_tokens")  # entries of an evaluation that are a run's parameters
NOT_CHARTED = ("bound_", "converged")  # entries of metrics.json that are under bound/ or in a tag


def read_tracked(journal: Path) -> Tracked:
    """Everything about a run that is on disk; raises UserError if its journal is not readable.

    Results count if they belong to this very training.
    """
    run = read_journal(journal)
    folder = results_folder(run.experiment, run.run_name)
    try:
        if (path := folder / "details.json").exists():
            manifest = read_json(path, Details, "evaluate").manifest
            if manifest and manifest.tracking_key == run.key:
                path = folder / "evaluation.json"
                evaluation = read_json(path, EvaluationResult, "evaluate")
                headline = read_json(folder / "metrics.json", dict[str, float], "evaluate")
                add_evaluation(run, evaluation, headline, modified_ms(path))
                run.files.append(folder / "details.json")
        if (path := folder / "suite.json").exists():
            suite = read_json(path, SuiteResults, "suite")
            if suite.manifest.tracking_key == run.key:
                add_suite(run, suite, modified_ms(path))
                run.files += [path, folder / "suite_samples"]
    except UserError as error:
        say(f"not in MLflow: {error}")
    return run


def modified_ms(path: Path) -> int:
    """When a file was written, ms since 1970."""
    return int(path.stat().st_mtime * 1000)


def bounds(measured: BudgetFigures | EvaluationResult) -> dict[str, float]:
    """The bound that arms are compared by, under one name for all of them."""
    units = {unit: getattr(measured, unit) for unit in results.UNITS}
    return {unit: figures.bound.mean for unit, figures in units.items() if figures}


def add_evaluation(
    run: Tracked, evaluation: EvaluationResult, headline: dict[str, float], at: int
) -> None:
    """Add an evaluation, at every budget with the logged model of its checkpoint."""
    run.params = {key: str(getattr(evaluation, key)) for key in PARAMS} | run.params
    run.tags |= evaluation_tags(evaluation)
    held_out = split_name(run.params["data"], SPLITS[-1])
    digest = run.params["data_hash"]
    for budget in evaluation.budgets[:-1]:
        origin = Origin(run.add_model(budget.tokens, budget.listed), held_out, digest)
        run.add("bound", bounds(budget), budget.tokens, at, origin)
        pairs = (("kl", budget.bits_per_token.kl), ("use", budget.bits_per_token.use))
        figures = {f"{name}_bits_per_token": value.mean for name, value in pairs if value}
        run.add("eval", figures, budget.tokens, at, origin)
    origin = Origin(run.add_model(evaluation.trained_tokens), held_out, digest)
    run.add("bound", bounds(evaluation), evaluation.trained_tokens, at, origin)
    figures = {k: v for k, v in headline.items() if not k.startswith(NOT_CHARTED)}
    for unit in results.UNITS:
        if measured := getattr(evaluation, unit):
            figures[f"bound_error_{unit}"] = measured.bound.se
    if gap := evaluation.own_text_gap:
        figures["own_text_gap_bits_per_token"] = gap.mean
        figures["own_text_gap_error_bits_per_token"] = gap.se
    run.add("eval", figures, evaluation.trained_tokens, at, origin)


def add_arms(parent: Tracked, runs: Iterable[Tracked]) -> None:
    """Add the final bound of each arm among ``runs`` to the run that they are nested in: the mean
    over seeds, and the sample standard deviation of several.
    """
    seeds: dict[str, list[Point]] = defaultdict(list)
    for run in (run for run in runs if "kind" in run.tags):  # else a journal of before
        final = {p.key: p for p in run.points if p.key.startswith("bound/")}  # budgets grow
        for key, point in final.items():
            seeds[f"{run.tags['arm']}_{key.removeprefix('bound/')}"].append(point)
    for name, points in seeds.items():
        values = [point.value for point in points]
        figures = {name: fmean(values)}
        if len(values) > 1:
            figures[f"{name}_spread"] = stdev(values)
        parent.add("over_seeds", figures, 0, max(point.time for point in points))


def evaluation_tags(evaluation: EvaluationResult) -> dict[str, str]:
    """Each part of evaluation.json as JSON; smaller budgets are named by their tokens."""
    parts = plain_data(evaluation)
    budgets = parts.pop("budgets", [])
    collapsed = parts.pop("collapsed", None)
    parts |= {f"at_{budget['tokens']}": budget for budget in budgets[:-1]}
    texts = {f"eval.{key}": dumps(part) for key, part in parts.items() if key not in PARAMS}
    tags = {key: text for key, text in texts.items() if len(text) <= MAX_TAG}  # MLflow's limit
    if evaluation.calibration:
        tags["eval.converged"] = "yes" if evaluation.calibration.converged else "no"
    if collapsed is not None:
        tags["collapsed"] = "yes" if collapsed else "no"
    return tags


def add_suite(run: Tracked, suite: SuiteResults, at: int) -> None:
    """Add a suite's scores at every budget; standard errors are tags, by the budget's tokens."""
    run.tags["suite"] = f"{suite.suite}, {suite.harness}, seed {suite.seed}"
    run.inputs = run.inputs + [benchmark(name, suite) for name in suite.tasks]
    trained = max(p.step for p in run.points if p.key.startswith("curve_by_tokens/"))
    checkpoints: list[tuple[int, int | None, Mapping[str, TaskScore]]] = [
        *((each.tokens, each.listed, each.tasks) for each in suite.budgets[:-1]),
        (trained, None, suite.tasks),
    ]
    errors: dict[str, dict[int, float]] = defaultdict(dict)
    for tokens, listed, tasks in checkpoints:
        model = run.add_model(tokens, listed)
        for name, score in tasks.items():
            data = benchmark(name, suite)
            origin = Origin(model, data["name"], data["digest"])
            others = score.other_figures(name) if isinstance(score, TaskResult) else {}
            for key, each in ({name: score} | others).items():
                run.add("suite", {key: each.value}, tokens, at, origin)
                if each.se is not None:
                    errors[f"suite.{key}_se"][tokens] = each.se
    run.tags |= {key: dumps(by_tokens) for key, by_tokens in errors.items()}


def benchmark(name: str, suite: SuiteResults) -> dict[str, str]:
    """The dataset of a task, as this version of the harness reads it."""
    task = suite.tasks.get(name) or TaskResult(0.0)
    content = f"{task.task} {task.version} {task.documents} {suite.harness} {suite.limit}"
    if task.sources:  # for our own data, the version covers them
        content += f" {task.sources}"
    digest = sha256(content.encode()).hexdigest()[:16]
    return dataset(name, digest, task.task or name, "eval")
