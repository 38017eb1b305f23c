"""Stage `suite`: score a trained run on benchmarks.

    python -m pipelines.suite text_free_k1_2

Writes results/<experiment>/<run>/suite.json (all figures), suite_scores.json (the score of each
document), suite_metrics.json (what `dvc metrics show` lists) and suite_samples/ (prompts, answers
and scores, as lm_eval logs them, packed), and adds them to the MLflow run of the training. A run
that lists `budgets` is scored at each of them.

Each task's outcome is kept in resume/ until all are done: a stage that was killed goes on there.
"""

import gzip
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import fmean

import torch

from pipelines.artifacts import result_files
from pipelines.artifacts.budget_results import in_last_third
from pipelines.artifacts.card import check_card
from pipelines.artifacts.checkpoint import Manifest, check_vocabulary, load_model
from pipelines.artifacts.paths import (
    checkpoint_path,
    results_folder,
    resume_folder,
    tokens_folder,
)
from pipelines.artifacts.suite_results import (
    SuiteBudget,
    SuiteLastThird,
    SuiteResults,
    TaskResult,
    TaskScore,
)
from pipelines.artifacts.tokens.shards import Shards
from pipelines.cluster.dispatch import here_or_on_a_worker
from pipelines.common.atomic_files import alone, replace_file, replace_folder
from pipelines.common.printable import printable
from pipelines.common.source_code import code_version
from pipelines.common.strict_json import dumps
from pipelines.config.derived import Budget
from pipelines.config.frozen import Frozen, freeze
from pipelines.config.schema import Experiment
from pipelines.config.suite import Suite, SuiteTask
from pipelines.suite.benchmark_data import fetched
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.task_index import harness_version, version_of_ours
from pipelines.suite.tasks import Outcome, Skipped, run_task
from pipelines.tracking.figures import log_suite
from pipelines.tracking.run import Tracking

SAMPLES = "suite_samples"


class Progress:
    """The outcomes of a checkpoint's tasks so far, in files that survive a kill."""

    def __init__(self, folder: Path, decisive: str) -> None:
        self.folder, self.decisive = folder, decisive
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, spec: SuiteTask) -> Path:
        key = sha256(f"{self.decisive} {spec}".encode()).hexdigest()[:16]
        return self.folder / f"{name}-{key}.json"

    def read(self, name: str, spec: SuiteTask) -> Outcome | None:
        path = self.path(name, spec)
        if not path.exists():
            return None
        try:
            # no pydantic: a text of a benchmark may hold what is no Unicode character
            result, scores, log = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(log, list):
                raise TypeError
            known = result_files.validate(TaskResult, json.dumps(result).encode())
            return Outcome(known, scores, log)
        except (OSError, ValueError, TypeError, RecursionError):
            print(f"{path} is damaged: {name} is scored again", flush=True)
            return None

    def write(self, name: str, spec: SuiteTask, outcome: Outcome) -> None:
        with replace_file(self.path(name, spec)) as file:
            result, scores, log = outcome
            file.write(dumps([asdict(result), scores, log]).encode())

    def remove(self, tasks: dict[str, SuiteTask]) -> None:
        """Those of other settings or another checkpoint stay."""
        for name, spec in tasks.items():
            self.path(name, spec).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.folder.rmdir()


@dataclass
class Scored:
    """What the tasks have given at one of a run's checkpoints."""

    budget: Budget
    manifest: Manifest
    samples: int  # of z; 1 for a baseline
    outcomes: dict[str, Outcome]
    skipped: dict[str, str]  # why
    progress: Progress

    def results(self) -> dict[str, TaskResult]:
        return {task: outcome.result for task, outcome in self.outcomes.items()}


def decisive(suite: Suite, manifest: Manifest, budget: Budget) -> str:
    """All that the figures of a checkpoint depend on, but for the task."""
    settings = {key: value for key, value in vars(suite).items() if key not in ("name", "tasks")}
    data = fetched({task.task for task in suite.tasks.values()})
    code = code_version("suite"), version_of_ours()
    return f"{manifest.spec_hash} {budget} {settings} {code} {harness_version()} {data}"


def score_checkpoint(experiment: Experiment, name: str, budget: Budget, folder: Path) -> Scored:
    """Score the model that a run has left at a budget; ``folder`` is for progress."""
    run, suite = experiment.runs[name], experiment.suite
    whole = budget.listed == run.tokens
    path = checkpoint_path(experiment.name, name, None if whole else budget.listed)
    model, manifest = load_model(path)
    check_card(path, manifest, experiment, name)
    shards = Shards(tokens_folder(run.data))
    check_vocabulary(path, manifest, shards)
    lm = FreeTransformerLM(
        model,
        shards.byte_tokenizer(),
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        scoring=suite.scoring,
        samples=suite.samples,
        batch_tokens=suite.batch_tokens,
        seed=suite.seed,
        weights=suite.weights,
    )
    progress = Progress(folder, decisive(suite, manifest, budget))
    scored = Scored(budget, manifest, lm.samples, {}, {}, progress)
    at = f" at {budget.listed:,} tokens" if run.budgets else ""
    for task, spec in suite.tasks.items():
        outcome = progress.read(task, spec)
        if outcome is None:
            try:
                outcome = run_task(lm, task, spec, suite)
            except Skipped as reason:
                scored.skipped[task] = str(reason)
                if whole:
                    print(printable(f"{name}: skipped {task}: {reason}"), flush=True)
                continue
            progress.write(task, spec, outcome)
        scored.outcomes[task] = outcome
        value, se = outcome.result.value, outcome.result.se
        error = "" if se is None else f" ± {se:.4f}"
        print(f"{name}{at}: {task} {value:.4f}{error} ({spec.label})", flush=True)
    return scored


def last_third(budgets: list[SuiteBudget]) -> SuiteLastThird:
    """The mean score of the checkpoints in the last third of the training, as in the paper's Table
    3; of the tasks that all of them were scored on.
    """
    late = [budget.tasks for budget in in_last_third(budgets)]
    names = [name for name in late[-1] if all(name in tasks for tasks in late)]
    means = {name: fmean(tasks[name].value for tasks in late) for name in names}
    return SuiteLastThird(n=len(late), tasks=means)


def suite_results(experiment: Experiment, name: str, series: list[Scored]) -> SuiteResults:
    """Of a run's checkpoints in the order of their budgets."""
    run, suite, final = experiment.runs[name], experiment.suite, series[-1]
    results = SuiteResults(
        suite=suite.name,
        harness=harness_version(),
        scoring=suite.scoring.value,
        samples=final.samples,
        limit=suite.limit,
        seed=suite.seed,
        tasks=final.results(),
        skipped=final.skipped,
        manifest=final.manifest,
        settings=asdict(suite),
    )
    if run.budgets:
        for scored in series:
            tasks = {k: TaskScore(task.value, task.se) for k, task in scored.results().items()}
            results.budgets.append(SuiteBudget.of(experiment, run, scored.budget, tasks=tasks))
        results.last_third = last_third(results.budgets)
    return results


def write_files(folder: Path, results: SuiteResults, final: Scored) -> None:
    outcomes = final.outcomes.items()
    scores = {task: outcome.scores for task, outcome in outcomes if outcome.scores is not None}
    with replace_folder(folder / SAMPLES) as samples:
        for task, outcome in outcomes:  # packed: prompts repeat their examples
            with gzip.open(samples / f"{task}.jsonl.gz", "wt", encoding="utf-8") as file:
                lines = (dumps(sample, ensure_ascii=False) for sample in outcome.log)
                file.writelines(f"{line}\n" for line in lines)
    result_files.write(folder / "suite_scores.json", scores, indent=None)
    metrics = {task: result.value for task, result in results.tasks.items()}
    result_files.write(folder / "suite_metrics.json", metrics)
    result_files.write(folder / "suite.json", results)


def track(experiment: Experiment, name: str, results: SuiteResults, final: Scored) -> None:
    """Add the figures to the MLflow run of the training."""
    tracking = Tracking(experiment.name)
    tracking.start(final.manifest, experiment, go_on=True)
    tokens = final.budget.steps * experiment.batch_tokens(experiment.runs[name])
    log_suite(tracking, final.manifest, results, tokens)
    folder = results_folder(experiment.name, name)
    for file in (folder / "suite.json", *sorted((folder / SAMPLES).iterdir())):
        tracking.log_artifact(file)
    tracking.finish()


def score_run(experiment: Experiment, name: str, frozen: Frozen | None = None) -> None:
    """Score a trained run: its files in results/ and its MLflow run. Raises UserError, also if its
    stage was ``frozen`` and params.yaml says something else in the end.
    """
    # beside the run's own folder, which stage `evaluate` deletes; no run has a dot in its name
    progress = resume_folder(experiment.name, f"{name}.suite")
    with alone(progress):
        series: list[Scored] = []
        # the whole run first: its figures matter most if the stage is cut short
        for budget in reversed(experiment.budgets(experiment.runs[name])):
            series.insert(0, score_checkpoint(experiment, name, budget, progress))
        results = suite_results(experiment, name, series)
        if frozen:
            frozen.check(f"its scores are kept in {progress} for when that is undone")
        write_files(results_folder(experiment.name, name), results, series[-1])
        track(experiment, name, results, series[-1])
        for scored in series:
            scored.progress.remove(experiment.suite.tasks)


def main(name: str) -> None:
    frozen = freeze("suite", name)
    experiment = frozen.experiment
    here_or_on_a_worker(experiment, partial(score_run, experiment, name, frozen))
