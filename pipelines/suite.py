"""Stage `suite`: score a trained run on benchmarks.    python -m pipelines.suite <run>

Writes results/<experiment>/<run>/suite.json (all figures), suite_scores.json (the score of each
document), suite_metrics.json (what `dvc metrics show` lists) and suite_samples/ (prompts, answers
and scores, as lm_eval logs them), and adds them to the MLflow run of the training. A run that lists
`budgets` is scored at each of them.

What a task has given is kept in resume/ until all are done: a stage that was killed goes on there.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ftmodel.transformer import FreeTransformer
from pipelines import errors
from pipelines.checkpoint import check_vocabulary, checkpoint_path, load_model, resume_folder
from pipelines.errors import UserError
from pipelines.files import alone, code_hash, replace_file, replace_folder
from pipelines.harness import FreeTransformerLM
from pipelines.inputs import FETCHED
from pipelines.schema import Experiment
from pipelines.shards import Shards
from pipelines.stage import argument, load_stage
from pipelines.suite_schema import Scoring, Suite
from pipelines.tasks import Skipped, TaskFigures, harness_version, run_task
from pipelines.tracking import Tracking

SCORING = (  # what else than checkpoint, tasks and settings decides the figures; see dvc.yaml
    "ftmodel/answers.py",
    "ftmodel/bounds.py",
    "ftmodel/generate.py",
    "pipelines/harness.py",
    "pipelines/sandbox.py",
    "pipelines/streams.py",
    "pipelines/tasks.py",
    "pipelines/suite.py",
)
Log = list[dict[str, Any]]  # of samples


class Progress:
    """What the tasks of one checkpoint have given so far, in files that outlive a kill."""

    def __init__(self, folder: Path, decisive: str) -> None:
        self.folder, self.decisive = folder, decisive
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, spec: Any) -> Path:
        key = sha256(f"{self.decisive} {name} {spec}".encode()).hexdigest()[:16]
        return self.folder / f"{name}-{key}.json"

    def read(self, path: Path) -> tuple[TaskFigures, Log] | None:
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        return TaskFigures(**kept["figures"]), kept["log"]

    def write(self, path: Path, figures: TaskFigures, log: Log) -> None:
        with replace_file(path) as file:
            file.write(json.dumps({"figures": asdict(figures), "log": log}).encode())


def run_suite(
    lm: FreeTransformerLM, suite: Suite, progress: Progress
) -> tuple[dict[str, TaskFigures], dict[str, Log], dict[str, str]]:
    """Figures and logs of each task, and why others were skipped."""
    figures, logs, skipped = {}, {}, {}
    for name, spec in suite.tasks.items():
        path = progress.path(name, spec)
        if found := progress.read(path):
            figures[name], logs[name] = found
            continue
        try:
            figures[name], logs[name] = run_task(lm, name, spec, suite)
        except Skipped as reason:
            skipped[name] = str(reason)
            print(f"skipped {name}: {reason}", flush=True)
            continue
        progress.write(path, figures[name], logs[name])
        print(f"{name}: {shown(figures[name])} ({spec.label})", flush=True)
    return figures, logs, skipped


def shown(figures: TaskFigures) -> str:
    error = "" if isnan(figures.se) else f" ± {figures.se:.4f}"
    return f"{figures.value:.4f}{error}"


def number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or isnan(value) else value


def entry(suite: Suite, name: str, figures: TaskFigures) -> dict[str, Any]:
    """What suite.json says of a task."""
    spec = suite.tasks[name]
    told = {key: value for key, value in asdict(figures).items() if key != "scores"}
    told |= {key: number(told[key]) for key in ("se", "mc_error", "undecided")}
    return {"metric": spec.label, "task": spec.task, **told}


def short(figures: dict[str, TaskFigures]) -> dict[str, Any]:
    return {name: {"value": one.value, "se": number(one.se)} for name, one in figures.items()}


def last_third(budgets: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean score of the checkpoints in the last third of the training, as the paper's Table 3
    has it; of the tasks that all of them were scored on.
    """
    late = [one for one in budgets if 3 * one["tokens"] >= 2 * budgets[-1]["tokens"]]
    names = [name for name in budgets[-1]["tasks"] if all(name in one["tasks"] for one in late)]
    means = {name: fmean(one["tasks"][name]["value"] for one in late) for name in names}
    return {"n": len(late), "tasks": means}


def language_model(
    model: FreeTransformer, shards: Shards, suite: Suite, device: torch.device
) -> FreeTransformerLM:
    return FreeTransformerLM(
        model.to(device),
        shards.byte_tokenizer(),
        device,
        scoring=suite.scoring,
        samples=suite.samples,
        batch_tokens=suite.batch_tokens,
        seed=suite.seed,
    )


def decisive(suite: Suite, spec_hash: str, tokens: int) -> str:
    """All that the figures of a checkpoint depend on, but for the task."""
    settings = {key: value for key, value in vars(suite).items() if key not in ("name", "tasks")}
    code = code_hash(SCORING)
    fetched = FETCHED.read_text() if FETCHED.exists() else ""
    return f"{spec_hash} {tokens} {settings} {code} {harness_version()} {fetched}"


def score(experiment: Experiment, name: str) -> None:
    """Score a trained run: its files in results/ and its MLflow run. Raises UserError."""
    run, suite = experiment.runs[name], experiment.suite
    shards = Shards(Path("data/tokens") / run.data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path("results") / experiment.name / name
    kept = suite_resume_folder(experiment.name, name)
    batch = experiment.batch_tokens(run)
    budgets = []
    with alone(kept):
        # the whole run first: of a stage cut short its figures are the ones to have
        for budget in reversed(experiment.budgets(run)):
            last = budget.listed == run.tokens
            path = checkpoint_path(experiment.name, name, None if last else budget.listed)
            model, card = load_model(path)
            check_vocabulary(path, card, shards)
            if run.budgets:
                print(f"{name} at {budget.listed:,} tokens", flush=True)
            lm = language_model(model, shards, suite, device)
            progress = Progress(kept, decisive(suite, card.spec_hash, budget.listed))
            figures, logs, missing = run_suite(lm, suite, progress)
            if last:
                final, final_card, latent = figures, card, model.latent is not None
                skipped = missing
                write_samples(folder / "suite_samples", logs)
            budgets.append(
                {
                    "tokens": budget.steps * batch,
                    "listed": budget.listed,
                    "annealed": budget.annealed,
                    "tasks": short(figures),
                }
            )
        budgets.reverse()
        marginal = latent and suite.scoring is Scoring.marginal
        results: dict[str, Any] = {
            "suite": suite.name,
            "harness": harness_version(),
            "scoring": suite.scoring.value,
            "samples": suite.samples if marginal else 1,
            "limit": suite.limit,
            "seed": suite.seed,
            "tasks": {task: entry(suite, task, one) for task, one in final.items()},
            "skipped": skipped,
        }
        if run.budgets:
            results |= {"budgets": budgets, "last_third": last_third(budgets)}
        values = {task: one.value for task, one in final.items()}
        scores = {task: one.scores for task, one in final.items() if one.scores is not None}
        for file, content in (
            ("suite.json", results),
            ("suite_scores.json", scores),
            ("suite_metrics.json", values),
        ):
            (folder / file).write_text(json.dumps(content, indent=None if content is scores else 2))

        tracking = Tracking(experiment.name)
        tracking.start(final_card, experiment, go_on=True)
        for one in budgets:
            told = {
                key: value
                for task, found in one["tasks"].items()
                for key, value in ((task, found["value"]), (f"{task}_se", found["se"]))
                if value is not None
            }
            tracking.log_figures("suite", told, step=one["tokens"] // batch)
        tracking.tag("suite", f"{suite.name}, {results['harness']}, seed {suite.seed}")
        tracking.log_artifact(folder / "suite.json")
        for file in sorted((folder / "suite_samples").iterdir()):
            tracking.log_artifact(file)
        tracking.finish()
        shutil.rmtree(kept, ignore_errors=True)


def suite_resume_folder(experiment: str, run: str) -> Path:
    """Beside the run's own, which stage `evaluate` deletes; no run has a dot in its name."""
    return resume_folder(experiment, f"{run}.suite")


def write_samples(target: Path, logs: dict[str, Log]) -> None:
    with replace_folder(target) as folder:
        for name, log in logs.items():
            lines = (json.dumps(sample, ensure_ascii=False) + "\n" for sample in log)
            (folder / f"{name}.jsonl").write_text("".join(lines))


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    if name not in experiment.suite_runs:
        raise UserError(f"{name!r} is not under suite_runs in params.yaml: no text, or no suite")
    if os.environ.get("RAY_ADDRESS"):
        from pipelines.cluster import on_a_worker  # one process needs no Ray

        on_a_worker(experiment, partial(score, experiment, name))
    else:
        score(experiment, name)


if __name__ == "__main__":
    errors.run(main)
