"""Stage `suite`: score a trained run on benchmarks.    python -m pipelines.suite <run>

Writes results/<experiment>/<run>/suite.json (all figures), suite_scores.json (the score of each
document), suite_metrics.json (what `dvc metrics show` lists) and suite_samples/ (prompts, answers
and scores, as lm_eval logs them, packed), and adds them to the MLflow run of the training. A run
that lists `budgets` is scored at each of them.

What a task has given is kept in resume/ until all are done: a stage that was killed goes on there.
"""

import gzip
import json
import shutil
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from pipelines.artifacts.checkpoint import (
    Manifest,
    check_vocabulary,
    checkpoint_path,
    load_model,
    resume_folder,
)
from pipelines.artifacts.results import at_budget, in_last_third
from pipelines.artifacts.tokens.shards import Shards
from pipelines.cluster.dispatch import here_or_on_a_worker
from pipelines.common.atomic_files import alone, replace_file, replace_folder
from pipelines.common.console import argument
from pipelines.common.errors import UserError
from pipelines.common.source_code import code_version, hash_of
from pipelines.config.derived import Budget
from pipelines.config.load import load_stage
from pipelines.config.schema import Experiment
from pipelines.config.suite import Suite, SuiteTask
from pipelines.suite.datasets import fetched
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.tasks import Skipped, TaskFigures, harness_version, our_files, run_task
from pipelines.tracking.run import Tracking

SAMPLES = "suite_samples"
Log = list[dict[str, Any]]  # of samples, as the harness keeps it


@dataclass
class Scored:
    """What the tasks of one checkpoint have given."""

    budget: Budget
    card: Manifest
    samples: int  # of z; 1 for a baseline
    figures: dict[str, TaskFigures]
    logs: dict[str, Log]
    skipped: dict[str, str]  # why


class Progress:
    """What the tasks of one checkpoint have given so far, in files that outlive a kill."""

    def __init__(self, folder: Path, decisive: str) -> None:
        self.folder, self.decisive = folder, decisive
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, spec: SuiteTask) -> Path:
        key = sha256(f"{self.decisive} {spec}".encode()).hexdigest()[:16]
        return self.folder / f"{name}-{key}.json"

    def read(self, name: str, spec: SuiteTask) -> tuple[TaskFigures, Log] | None:
        path = self.path(name, spec)
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        return TaskFigures(**kept["figures"]), kept["log"]

    def write(self, name: str, spec: SuiteTask, figures: TaskFigures, log: Log) -> None:
        with replace_file(self.path(name, spec)) as file:
            file.write(json.dumps({"figures": asdict(figures), "log": log}).encode())


def decisive(suite: Suite, card: Manifest, budget: Budget) -> str:
    """All that the figures of a checkpoint depend on, but for the task."""
    settings = {key: value for key, value in vars(suite).items() if key not in ("name", "tasks")}
    brought = fetched({task.task for task in suite.tasks.values()})
    code = code_version("suite"), hash_of(our_files())
    return f"{card.spec_hash} {budget} {settings} {code} {harness_version()} {brought}"


def score_checkpoint(experiment: Experiment, name: str, budget: Budget, folder: Path) -> Scored:
    """Score the model that a run has left at a budget; ``folder`` is for progress."""
    run, suite = experiment.runs[name], experiment.suite
    whole = budget.listed == run.tokens
    path = checkpoint_path(experiment.name, name, None if whole else budget.listed)
    model, card = load_model(path)
    shards = Shards(Path("data/tokens") / run.data)
    check_vocabulary(path, card, shards)
    lm = FreeTransformerLM(
        model,
        shards.byte_tokenizer(),
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        scoring=suite.scoring,
        samples=suite.samples,
        batch_tokens=suite.batch_tokens,
        seed=suite.seed,
    )
    progress = Progress(folder, decisive(suite, card, budget))
    scored = Scored(budget, card, lm.samples, {}, {}, {})
    at = f" at {budget.listed:,} tokens" if run.budgets else ""
    for task, spec in suite.tasks.items():
        found = progress.read(task, spec)
        if found is None:
            try:
                found = run_task(lm, task, spec, suite)
            except Skipped as reason:
                scored.skipped[task] = str(reason)
                if whole:
                    print(f"{name}: skipped {task}: {reason}", flush=True)
                continue
            progress.write(task, spec, *found)
        scored.figures[task], scored.logs[task] = found
        print(f"{name}{at}: {task} {shown(found[0])} ({spec.label})", flush=True)
    return scored


def shown(figures: TaskFigures) -> str:
    error = "" if isnan(figures.se) else f" ± {figures.se:.4f}"
    return f"{figures.value:.4f}{error}"


def number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or isnan(value) else value


def entry(spec: SuiteTask, figures: TaskFigures) -> dict[str, Any]:
    """What suite.json says of a task."""
    told = {key: value for key, value in asdict(figures).items() if key != "scores"}
    told |= {key: number(told[key]) for key in ("se", "mc_error", "undecided")}
    return {"metric": spec.label, "task": spec.task, **told}


def short(figures: dict[str, TaskFigures]) -> dict[str, Any]:
    """What the entry of a budget says of the tasks."""
    return {name: {"value": one.value, "se": number(one.se)} for name, one in figures.items()}


def last_third(budgets: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean score of the checkpoints in the last third of the training, as the paper's Table 3
    has it; of the tasks that all of them were scored on.
    """
    late = in_last_third(budgets)
    names = [name for name in budgets[-1]["tasks"] if all(name in one["tasks"] for one in late)]
    means = {name: fmean(one["tasks"][name]["value"] for one in late) for name in names}
    return {"n": len(late), "tasks": means}


def results(experiment: Experiment, name: str, series: list[Scored]) -> dict[str, Any]:
    """The content of suite.json, from a run's checkpoints in the order of their budgets."""
    run, suite, final = experiment.runs[name], experiment.suite, series[-1]
    found: dict[str, Any] = {
        "suite": suite.name,
        "harness": harness_version(),
        "scoring": suite.scoring.value,
        "samples": final.samples,
        "limit": suite.limit,
        "seed": suite.seed,
        "tasks": {task: entry(suite.tasks[task], one) for task, one in final.figures.items()},
        "skipped": final.skipped,
    }
    if run.budgets:
        budgets = [
            at_budget(experiment, run, scored.budget, {"tasks": short(scored.figures)})
            for scored in series
        ]
        found |= {"budgets": budgets, "last_third": last_third(budgets)}
    return found


def write_files(folder: Path, found: dict[str, Any], final: Scored) -> None:
    figures = final.figures.items()
    scores = {task: one.scores for task, one in figures if one.scores is not None}
    with replace_folder(folder / SAMPLES) as samples:
        for task, log in final.logs.items():  # packed: prompts repeat their examples
            with gzip.open(samples / f"{task}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(json.dumps(sample, ensure_ascii=False) + "\n" for sample in log)
    (folder / "suite_scores.json").write_text(json.dumps(scores) + "\n")
    metrics = {task: one.value for task, one in figures}
    (folder / "suite_metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    (folder / "suite.json").write_text(json.dumps(found, indent=2) + "\n")


def track(experiment: Experiment, name: str, found: dict[str, Any], series: list[Scored]) -> None:
    """Add the figures to the MLflow run of the training."""
    tracking = Tracking(experiment.name)
    tracking.start(series[-1].card, experiment, go_on=True)
    for scored in series:
        figures = {task: one.value for task, one in scored.figures.items()}
        errors_of = {f"{task}_se": number(one.se) for task, one in scored.figures.items()}
        figures |= {key: error for key, error in errors_of.items() if error is not None}
        tracking.log_figures("suite", figures, step=scored.budget.steps)
    tracking.tag("suite", f"{found['suite']}, {found['harness']}, seed {found['seed']}")
    folder = Path("results") / experiment.name / name
    for file in (folder / "suite.json", *sorted((folder / SAMPLES).iterdir())):
        tracking.log_artifact(file)
    tracking.finish()


def score(experiment: Experiment, name: str) -> None:
    """Score a trained run: its files in results/ and its MLflow run. Raises UserError."""
    # beside the run's own folder, which stage `evaluate` deletes; no run has a dot in its name
    kept = resume_folder(experiment.name, f"{name}.suite")
    with alone(kept):
        series: list[Scored] = []
        # the whole run first: of a stage cut short its figures are the ones to have
        for budget in reversed(experiment.budgets(experiment.runs[name])):
            series.insert(0, score_checkpoint(experiment, name, budget, kept))
        found = results(experiment, name, series)
        write_files(Path("results") / experiment.name / name, found, series[-1])
        track(experiment, name, found, series)
        shutil.rmtree(kept, ignore_errors=True)


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    if name not in experiment.suite_runs:
        raise UserError(f"{name!r} is not under suite_runs in params.yaml: no text, or no suite")
    here_or_on_a_worker(experiment, partial(score, experiment, name))
