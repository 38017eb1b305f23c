"""Benchmark tasks, of ours (tasks/) and of the lm-evaluation-harness, and their figures.

The harness builds prompts, extracts answers, scores and counts; here are the names, the data
(task_data.py), and what it does not compute: how sure a choice is under Monte-Carlo scoring.
"""

import json
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from math import hypot, isclose, log, nan
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, Protocol

import lm_eval
import numpy as np
import torch
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from lm_eval.tasks._factory import TaskFactory  # TaskManager takes no override for a group
from lm_eval.tasks._index import Entry, Kind
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.utils import handle_non_serializable
from tqdm import tqdm

from ftmodel.analysis.statistics import mean_and_error
from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.common.file_listing import one_line
from pipelines.suite import datasets as task_data

OURS = ROOT / "tasks"
HARNESS = Path(lm_eval.__file__).parent / "tasks"
# folders of the harness that the suites use: its whole index takes 15 seconds
FOLDERS = (
    "arc",
    "commonsense_qa",
    "gsm8k",
    "hellaswag",
    "mmlu/default",
    "nq_open",
    "openbookqa",
    "piqa",
    "race",
    "super_glue/boolq",
    "triviaqa",
    "winogrande",
)
BOOTSTRAP = 1000  # draws for the standard error of a metric that has no closed form
SURE = 2.0  # Monte-Carlo standard errors


class Skipped(Exception):
    """A task that cannot be run here; the message is one line: why, and how to mend it."""


class Scorer(Protocol):
    """What a task needs of a model besides being the harness's LM."""

    truncated: int  # requests cut from the left since start_task
    mc_error: dict[tuple[str, str], float]  # (context, continuation) → nats

    def start_task(self) -> None: ...


class TaskEntry(Protocol):
    """An entry of suite.tasks."""

    task: str
    key: str  # of the harness's results: "<metric>,<filter>"
    shots: int | None


class Settings(Protocol):
    """What a suite says to all its tasks."""

    limit: int | None
    run_code: bool
    seed: int


@dataclass
class TaskFigures:
    value: float
    se: float  # standard error over documents, by the harness; nan if unknown
    higher_is_better: bool
    documents: int
    shots: int
    version: str  # of the task's prompt, as the harness counts it
    truncated: int  # requests cut from the left
    mc_error: float | None  # mean over requests, nats
    undecided: float | None  # share of documents whose two best choices z's noise may swap
    scores: list[float] | None  # one a document, where the value is their mean
    seconds: float
    subtasks: dict[str, float] = field(default_factory=dict)  # value of each, for groups


def harness_version() -> str:
    return f"lm_eval {version('lm_eval')}"


def our_files() -> tuple[str, ...]:
    """All that our own tasks are made of: prompts, data, code."""
    files = (path for path in OURS.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return tuple(sorted(map(str, files)))


# ---------------------------------------------------------------------------------------- names


@cache
def index(everything: bool = False) -> dict[str, Entry]:
    """Tasks, groups and tags by name: ours and those of FOLDERS, or all of the harness."""
    folders = [] if everything else [str(HARNESS / name) for name in FOLDERS]
    with quiet():
        manager = TaskManager(include_path=[*folders, str(OURS)], include_defaults=everything)
    return manager.task_index


def entries_of(task: str) -> dict[str, Entry]:
    """The smallest index that has the task; raises KeyError."""
    for everything in (False, True):
        if task in index(everything):
            return index(everything)
    raise KeyError(task)


def check_names(tasks: Mapping[str, str]) -> None:
    """Raise UserError for the first of ``tasks`` (key under suite.tasks → task) that nobody knows.

    Only such a name costs an index of the whole harness.
    """
    for key, task in tasks.items():
        try:
            entries_of(task)
        except KeyError:
            near = get_close_matches(task, index(everything=True), n=3)
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise UserError(
                f"suite.tasks.{key}.task: {task!r} is no task of ours (tasks/) nor of the harness"
                f"{hint}"
            ) from None


def check_key(name: str, task: str, key: str) -> None:
    """Raise UserError if ``task`` has no figure ``key``, as far as its file says: that of a group
    is looked at when it is loaded, with its data.
    """
    entry = entries_of(task)[task]
    if entry.kind is not Kind.TASK:
        return
    config = load_yaml(entry.yaml_path, resolve_func=False, recursive=True)
    metrics = [str(each["metric"]) for each in config.get("metric_list", [])]
    if metrics and not any("." in metric for metric in metrics):  # a function has another name
        refuse_key(name, key, metrics, config.get("filter_list"))


def refuse_key(name: str, key: str, metrics: list[str], filters: list[Any] | None) -> None:
    """Raise UserError unless ``key`` is one of ``metrics`` behind one of ``filters``."""
    kept = [each["name"] for each in filters or [{"name": "none"}]]
    known = [f"{metric},{each}" for metric in metrics for each in kept]
    if key not in known:
        raise UserError(f"suite.tasks.{name}.key: {key!r} is not one of {', '.join(known)}")


def leaves(task: str, entries: Mapping[str, Entry]) -> Iterator[Entry]:
    """The single tasks behind a name, with those of groups and tags."""
    entry = entries[task]
    if entry.kind is Kind.TAG:
        members: list[Any] = sorted(entry.tags)
    elif entry.kind is Kind.GROUP:
        members = entry.cfg["task"]
    else:
        yield entry
        return
    for member in members if isinstance(members, list) else [members]:
        name = member if isinstance(member, str) else member.get("group", member.get("task"))
        if name in entries:
            yield from leaves(name, entries)


# -------------------------------------------------------------------------------------- loading


class StoredTask(ConfigurableTask):  # type: ignore[misc]
    """A task of the harness on data that lie here, whose documents are checked as they are used."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config={key: value for key, value in config.items() if key != "class"})

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        if callable(self.config.custom_dataset):
            super().download(dataset_kwargs)
        else:
            self.dataset = task_data.load(*task_data.source(self.config))
            split = self.config.test_split or self.config.validation_split
            if split in self.dataset and not len(self.dataset[split]):
                raise UserError(f"task {self.config.task}: its split {split} has no documents")

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> list[str]:
        """Raises UserError if there is nothing to choose from, or nothing in a choice."""
        choices: list[str] = super().doc_to_choice(doc, doc_to_choice)
        if not choices:
            raise UserError(f"{self.named(doc)} has no choices")
        if "" in choices:
            raise UserError(f"{self.named(doc)}: choice {choices.index('')} is empty")
        return choices

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        requests = super().construct_requests(doc, ctx, **kwargs)
        for request in requests if isinstance(requests, list) else [requests]:
            scored = request.request_type != "generate_until"
            if scored and request.args[-1] == "":
                raise UserError(f"{self.named(doc)}: nothing to score, an empty text")
        return requests

    def named(self, doc: Any) -> str:
        """The document as its task counts it."""
        found = (number for number, other in enumerate(self.eval_docs) if other == doc)
        number = next(found, None)
        which = "a document for the prompt" if number is None else f"document {number}"
        return f"task {self.config.task}: {which}"


def load(task: str) -> dict[str, Any]:
    """The harness's tasks and groups by name; raises Skipped if their data are of no use."""
    entries = entries_of(task)
    entry = entries[task]
    ours = not any(leaf.kind is Kind.PY_TASK for leaf in leaves(task, entries))
    try:
        with quiet(logging.ERROR):  # it warns of settings that its own tasks leave out
            built = TaskFactory().build(
                entry, overrides={"class": StoredTask} if ours else None, registry=dict(entries)
            )
            manager = TaskManager(include_defaults=False)
            return dict(manager.load(built if isinstance(built, list) else [built]))
    except task_data.NotHere as error:
        raise Skipped(
            f"its data are not in {task_data.FOLDER} ({error}); "
            "`python -m pipelines.fetch` brings them there"
        ) from error
    except UserError as error:  # its first document cannot be used, or there is none
        raise Skipped(str(error)) from error
    except (ImportError, OSError) as error:  # of a task that is a program, and gets its own data
        raise Skipped(f"the harness cannot load it here ({one_line(error)})") from error


def check_programs(task: str, run_code: bool) -> None:
    """Raise Skipped for a task that runs what a model wrote, unless that is asked for and safe."""
    unsafe = [leaf for leaf in leaves(task, entries_of(task)) if leaf.cfg.get("unsafe_code")]
    if not unsafe:
        return
    if any(OURS not in Path(leaf.yaml_path).parents for leaf in unsafe):
        raise Skipped(
            "the harness would run what a model wrote with no sandbox; "
            "ft_human_eval_plus and ft_mbpp have one"
        )
    if not run_code:
        raise Skipped("programs that a model wrote are run only if asked for: suite.run_code=true")
    from pipelines.suite.sandbox import run as sandbox

    if reason := sandbox.unavailable():
        raise Skipped(reason)


def configure(name: str, spec: TaskEntry, loaded: dict[str, Any], seed: int) -> None:
    """Set shots and seed of the tasks; raise UserError for a metric or shots they do not have."""
    metric = spec.key.partition(",")[0]
    if len(loaded["tasks"]) > 1:
        group = loaded["groups"].get(spec.task)  # a tag is none
        common = [each.metric for each in (group and group.aggregate_metric_list) or []]
        if metric not in common:
            raise UserError(
                f"suite.tasks.{name}.key: {spec.task} has no {metric!r} for its "
                f"{len(loaded['tasks'])} tasks together; name them one by one"
            )
    for task in loaded["tasks"].values():
        shots = spec.shots if spec.shots is not None else (task.config.num_fewshot or 0)
        task.set_config("num_fewshot", shots)
        task.set_fewshot_seed(seed)
        if shots > len(task.sampler.df):
            raise UserError(
                f"suite.tasks.{name}.shots: {shots}, but {task.config.task} has "
                f"{len(task.sampler.df)} documents for its prompt"
            )
        refuse_key(name, spec.key, list(task.aggregation()), task.config.filter_list)


# -------------------------------------------------------------------------------------- running


def run_task(
    lm: Scorer, name: str, spec: TaskEntry, suite: Settings
) -> tuple[TaskFigures, list[dict[str, Any]]]:
    """Figures of ``name``, an entry of suite.tasks, and the harness's log of its samples.

    Raises Skipped if it cannot be run here, or one of its documents cannot be scored; UserError for
    what is wrong with the entry.
    """
    check_names({name: spec.task})
    check_programs(spec.task, suite.run_code)
    loaded = load(spec.task)
    configure(name, spec, loaded, suite.seed)
    random.seed(suite.seed)
    np.random.seed(suite.seed)
    torch.manual_seed(suite.seed)
    lm.start_task()
    begin = perf_counter()
    try:
        with quiet():
            results = evaluate(
                lm,
                loaded,
                limit=suite.limit,
                bootstrap_iters=BOOTSTRAP,
                log_samples=True,
                confirm_run_unsafe_code=True,  # check_programs has asked for more
            )
    except UserError as error:  # a document that no model, or not this one, can be asked about
        raise Skipped(str(error)) from error
    seconds = perf_counter() - begin
    tasks = loaded["tasks"]
    top = spec.task if len(tasks) > 1 else next(iter(tasks))
    if spec.key not in results["results"][top]:
        raise UserError(
            f"suite.tasks.{name}.key: {top} gives no {spec.key!r} for its {len(tasks)} tasks"
        )
    samples = [
        {"task": task, **sample} | with_error(lm, sample)
        for task in tasks
        for sample in results["samples"][task]
        if sample["filter"] == spec.key.partition(",")[2]
    ]
    figures = read_figures(lm, spec.key, tasks, top, results, samples)
    figures.seconds = seconds
    if spec.task in loaded["groups"]:
        figures.version = str(loaded["groups"][spec.task].version)
    return figures, json.loads(json.dumps(samples, default=handle_non_serializable))


def read_figures(
    lm: Scorer,
    key: str,
    tasks: Mapping[str, Any],
    top: str,
    results: Mapping[str, Any],
    samples: list[dict[str, Any]],
) -> TaskFigures:
    """What the harness counted, and how far Monte-Carlo noise bears on it."""
    metric, _, chosen = key.partition(",")
    found = results["results"][top]
    first = next(iter(tasks))
    errors = list(chain.from_iterable(sample.get("mc_error", []) for sample in samples))
    return TaskFigures(
        value=float(found[key]),
        se=standard_error(metric, found.get(f"{metric}_stderr,{chosen}"), samples),
        higher_is_better=bool(results["higher_is_better"][first][metric]),
        documents=len(samples),
        shots=int(tasks[first].config.num_fewshot),
        version=str(results["versions"][top]),
        truncated=lm.truncated,
        mc_error=fmean(errors) if errors else None,
        undecided=undecided(metric, tasks, samples),
        scores=scores(metric, float(found[key]), samples),
        seconds=nan,
        subtasks={task: float(results["results"][task][key]) for task in tasks}
        if len(tasks) > 1
        else {},
    )


def standard_error(metric: str, counted: Any, samples: list[dict[str, Any]]) -> float:
    """Over documents: the harness's, and for bits per byte, where it has none, the ratio's."""
    if metric == "bits_per_byte":
        nats, sizes = torch.tensor([sample[metric] for sample in samples]).double().T
        return mean_and_error(-nats / log(2), sizes)["se"]
    return float(counted) if isinstance(counted, int | float) else nan


def with_error(lm: Scorer, sample: Mapping[str, Any]) -> dict[str, list[float]]:
    """Monte-Carlo errors of a sample's log-likelihoods, nats; nothing where any is not known."""
    pairs = [
        arguments if len(arguments) == 2 else ("", *arguments) for arguments in sample["arguments"]
    ]  # a rolling request is its text alone
    if not all(isinstance(continuation, str) for _, continuation in pairs):
        return {}  # generation
    errors = [lm.mc_error.get((context, continuation)) for context, continuation in pairs]
    known = [error for error in errors if error is not None]
    return {"mc_error": known} if known and len(known) == len(errors) else {}


def undecided(metric: str, tasks: Mapping[str, Any], samples: list[dict[str, Any]]) -> float | None:
    """Share of multiple-choice documents whose two best choices, as the metric weighs them, are
    less than SURE standard errors of their difference apart, the two taken as independent; None
    where no error is known.
    """
    lengths = {
        "acc": lambda choice: 1,
        "acc_norm": len,
        "acc_bytes": lambda choice: len(choice.encode()),
    }
    kinds = {task.OUTPUT_TYPE for task in tasks.values()}
    if metric not in lengths or kinds != {"multiple_choice"}:
        return None
    if not samples or not all("mc_error" in sample for sample in samples):
        return None
    close = 0
    for sample in samples:
        choices = tasks[sample["task"]].doc_to_choice(sample["doc"])
        weighed = sorted(
            (
                (likelihood / lengths[metric](choice), error / lengths[metric](choice))
                for choice, (likelihood, _), error in zip(
                    choices, sample["filtered_resps"], sample["mc_error"], strict=True
                )
            ),
            reverse=True,
        )
        if len(weighed) > 1:
            (best, best_error), (second, second_error) = weighed[:2]
            close += best - second < SURE * hypot(best_error, second_error)
    return close / len(samples)


def scores(metric: str, value: float, samples: list[dict[str, Any]]) -> list[float] | None:
    """Each document's score, if the value is their mean."""
    found = [sample[metric] for sample in samples]
    if not all(isinstance(score, int | float) for score in found):
        return None
    found = [float(score) for score in found]
    return found if isclose(fmean(found), value, abs_tol=1e-9) else None


@contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """The harness tells what it is doing at length; let it warn alone, and count on a terminal."""
    logger = logging.getLogger("lm_eval")
    before = logger.level, lm_eval.api.task.tqdm
    logger.setLevel(level)
    lm_eval.api.task.tqdm = partial(tqdm, desc="prompts", leave=False, disable=None)
    try:
        yield
    finally:
        logger.setLevel(before[0])
        lm_eval.api.task.tqdm = before[1]
