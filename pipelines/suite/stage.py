"""Stage `suite`: score a trained run on benchmarks. Outcomes of tasks wait until all are done."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from traceback import format_exc
from typing import Any, TypeVar

import torch

from pipelines.artifacts.checkpoint import Manifest, load_trained
from pipelines.artifacts.result_files import Unfinished, parse_json, unfinished, write_json
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.suite_results import (
    SampledScore,
    SuiteBudget,
    SuiteResults,
    TaskResult,
    TaskScore,
    document_key,
    sampled_key,
)
from pipelines.cluster.dispatch import here_or_on_a_worker
from pipelines.common.file_listing import words_of
from pipelines.config.derived import Budget
from pipelines.config.load import Frozen, freeze
from pipelines.config.schema import Suite, SuiteTask
from pipelines.host.errors import UNWRITABLE, UserError, printable
from pipelines.host.files import dumps, replace_folder, write_file
from pipelines.host.pytorch import full_memory
from pipelines.host.source_code import code_version
from pipelines.suite.benchmark_data import fetched
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.pass_at_k import SampledOutcome, run_sampled, samplings
from pipelines.suite.task_index import harness_version, version_of_ours
from pipelines.suite.tasks import LoggedSample, Outcome, Skipped, run_task
from pipelines.tracking.sync import sync_stage

SAMPLES = "suite_samples"  # a folder in results/<experiment>/<run>/
AnyOutcome = TypeVar("AnyOutcome", Outcome, SampledOutcome)
RESULTS = {Outcome: TaskResult, SampledOutcome: SampledScore}  # what an outcome begins with


@dataclass
class Progress:
    """The outcomes of a checkpoint's tasks so far."""

    waiting: Unfinished
    decisive: str

    def outcome(
        self, name: str, spec: SuiteTask, kind: type[AnyOutcome], make: Callable[[], AnyOutcome]
    ) -> AnyOutcome:
        """The outcome that is kept here, or a new one, which is then kept."""
        path = self.waiting.path(name, f"{self.decisive} {spec}")
        if path.exists():
            try:
                # no pydantic: a text of a benchmark may hold what is no Unicode character
                result, scores, log, *more = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(log, list):
                    raise TypeError
                known: Any = parse_json(RESULTS[kind], json.dumps(result).encode())
                return kind(known, scores, log, *more)
            except (OSError, ValueError, TypeError, RecursionError):
                print(f"{path} is damaged: {name} is scored again", flush=True)
        outcome = make()
        new, *others = outcome
        write_file(path, dumps([asdict(new), *others]))
        return outcome


@dataclass
class Scored:
    """Outcomes of the tasks at one of a run's checkpoints."""

    budget: Budget
    manifest: Manifest
    samples: int  # of z; 1 for a baseline
    outcomes: dict[str, Outcome]
    sampled: dict[str, list[SampledOutcome]]  # several answers a prompt
    skipped: dict[str, str]  # why; for a task that failed, "failed: " and why
    tracebacks: dict[str, str]  # of tasks that failed

    @contextmanager
    def apart(self, task: str, at: str) -> Iterator[None]:
        """Note why a task has no score and go on, after any error but a full memory or disk."""
        run = self.manifest.run_name
        try:
            yield
        except Skipped as reason:
            self.skipped[task] = f"{reason}"
            if self.budget.listed == self.manifest.run["tokens"]:
                print(printable(f"{run}: skipped {task}: {reason}"), flush=True)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in UNWRITABLE:
                raise
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            cause = error.__cause__ if kind and isinstance(error.__cause__, Exception) else None
            why = f" ({words_of(cause)})" if cause else ""
            self.skipped[task] = f"failed: {kind}{words_of(error)}{why}"
            self.tracebacks[task] = format_exc()
            print(printable(f"{run}{at}: {task} {self.skipped[task]}"), flush=True)

    def results(self) -> dict[str, TaskResult]:
        sampled = {task: [each.score for each in ways] for task, ways in self.sampled.items()}
        return {
            task: replace(outcome.result, sampled=sampled.get(task, []))
            for task, outcome in self.outcomes.items()
        }

    def documents(self) -> Iterator[tuple[str, list[float]]]:
        """Entries of suite_scores.json: the scores of all documents, by figure."""
        for task, outcome in self.outcomes.items():
            if outcome.scores is not None:
                yield task, outcome.scores
            for figure, values in outcome.more.items():
                yield document_key(task, figure), values
            for each in self.sampled.get(task, []):
                for figure, values in each.documents.items():
                    yield sampled_key(task, each.score.sampling, figure), values

    def logs(self) -> Iterator[tuple[str, list[LoggedSample]]]:
        """Logs of what was asked and answered, by the name of a file."""
        for task, outcome in self.outcomes.items():
            yield task, outcome.log
            for each in self.sampled.get(task, []):
                yield f"{task}.{each.score.sampling.name}", each.log


def decisive(suite: Suite, manifest: Manifest, budget: Budget) -> str:
    """All that a checkpoint's figures depend on, except the task."""
    others = ("name", "tasks", "strict")
    settings = {key: value for key, value in vars(suite).items() if key not in others}
    data = fetched({task.task for task in suite.tasks.values()})
    model = manifest.spec_hash, manifest.tracking_key, budget
    code = code_version("suite"), version_of_ours(), harness_version(), str(torch.__version__)
    return f"{model} {settings} {code} {data}"


def score_checkpoint(spec: RunSpec, budget: Budget, waiting: Unfinished) -> Scored:
    """Score a run's model at a budget; outcomes that are ``waiting`` need not be made again."""
    name, suite = spec.name, spec.experiment.suite
    whole = budget.listed == spec.run.tokens
    model, manifest, shards = load_trained(spec, None if whole else budget.listed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lm = FreeTransformerLM(model, shards.byte_tokenizer(), device, suite)
    progress = Progress(waiting, decisive(suite, manifest, budget))
    scored = Scored(budget, manifest, lm.samples, {}, {}, {}, {})
    at = f" at {budget.listed:,} tokens" if spec.run.budgets else ""
    memory = "suite.batch_tokens or suite.samples"
    for task, settings in suite.tasks.items():
        with full_memory(f"{name}: {task}", memory), scored.apart(task, at):
            make = partial(run_task, lm, task, settings, suite)
            outcome = scored.outcomes[task] = progress.outcome(task, settings, Outcome, make)
        if task not in scored.outcomes:
            continue
        value, se = outcome.result.value, outcome.result.se
        error = f" ± {se:.4f}" if se else ""
        print(f"{name}{at}: {task} {value:.4f}{error} ({settings.label})", flush=True)
        if whole and suite.pass_at_k.samples and task in suite.pass_at_k.tasks:
            with full_memory(f"{name}: {task}", memory), scored.apart(f"{task}, pass@k", at):
                scored.sampled[task] = sample_answers(lm, name, task, suite, progress)
    return scored


def sample_answers(
    lm: FreeTransformerLM, name: str, task: str, suite: Suite, progress: Progress
) -> list[SampledOutcome]:
    """Draw several answers to each prompt of a task, in every way that the model allows."""
    spec, outcomes = suite.tasks[task], []
    for sampling in samplings(suite.pass_at_k, lm.model.noise_source is not None):
        make = partial(run_sampled, lm, task, spec, suite, sampling)
        outcome = progress.outcome(f"{task}.{sampling.name}", spec, SampledOutcome, make)
        values = (f"{k} {value.value:.4f}" for k, value in outcome.score.figures().items())
        print(f"{name}: {task}, {sampling.name}: {', '.join(values)}", flush=True)
        outcomes.append(outcome)
    return outcomes


def suite_results(spec: RunSpec, series: list[Scored]) -> SuiteResults:
    """Results of a run's checkpoints, in the order of their budgets."""
    suite, final = spec.experiment.suite, series[-1]
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
    if spec.run.budgets:
        for scored in series:
            tasks = {k: TaskScore(task.value, task.se) for k, task in scored.results().items()}
            results.budgets.append(SuiteBudget.of(spec, scored.budget, tasks=tasks))
    return results


def write_scores(folder: Path, results: SuiteResults, final: Scored) -> None:
    with replace_folder(folder / SAMPLES) as samples:
        for task, log in final.logs():  # packed: prompts repeat their examples
            path = samples / f"{task}.jsonl.gz"
            # a text may hold what is no Unicode character: JSON has an escape for it
            with gzip.open(path, "wt", encoding="utf-8", errors="backslashreplace") as file:
                lines = (dumps(sample, ensure_ascii=False) for sample in log)
                file.writelines(f"{line}\n" for line in lines)
        for task, text in final.tracebacks.items():
            (samples / f"{task}.error.txt").write_text(text, encoding="utf-8", errors="replace")
    write_json(folder / "suite_scores.json", dict(final.documents()), indent=None)
    metrics = {task: result.value for task, result in results.tasks.items()}
    write_json(folder / "suite_metrics.json", metrics)
    write_json(folder / "suite.json", results)


def score_run(spec: RunSpec, frozen: Frozen | None = None) -> None:
    """Score a trained run; raises UserError, also if params.yaml has changed since ``frozen``."""
    with unfinished(spec, "suite", frozen) as waiting:
        series: list[Scored] = []
        # the whole run first: its figures matter most if the stage is cut short
        for budget in reversed(spec.budgets):
            series.insert(0, score_checkpoint(spec, budget, waiting))
        results = suite_results(spec, series)
        waiting.check_settings("scores")
        write_scores(spec.results, results, series[-1])
        sync_stage(spec)
        failed = dict.fromkeys(task for scored in series for task in scored.tracebacks)
        if spec.experiment.suite.strict and failed:
            raise UserError(
                f"suite.strict: failed: {', '.join(failed)} (why: {spec.results}/suite.json); the "
                f"scores of the others stay in {waiting.folder}"
            )


def main(name: str) -> None:
    frozen = freeze("suite", name)
    spec = RunSpec(frozen.experiment, name)
    here_or_on_a_worker(frozen.experiment, partial(score_run, spec, frozen))
