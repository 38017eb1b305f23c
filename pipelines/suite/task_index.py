"""Names of benchmark tasks: ours (tasks/) and the lm-evaluation-harness's."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Entry, Kind
from lm_eval.tasks._yaml_loader import load_yaml
from tqdm import tqdm

from pipelines.common.file_listing import Fingerprint, Folder
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT

# Names of benchmark tasks: ours (tasks/) and the lm-evaluation-harness's.

OURS = ROOT / "tasks"
HARNESS = Path(lm_eval.__file__).parent / "tasks"
# folders of the harness that the suites use: indexing all of it takes 15 seconds
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


def harness_version() -> str:
    return f"lm_eval {version('lm_eval')}"


def version_of_ours() -> str:
    """Hash of everything that our own tasks consist of: prompts, data, code."""
    fingerprint = Fingerprint()
    for file in Folder("tasks", str(OURS), "**", exclude=["__pycache__"]).entries():
        fingerprint.add_content(file)
    return fingerprint.hex()


@cache
def index(everything: bool) -> dict[str, Entry]:
    """Tasks, groups and tags by name: ours, and the harness's in FOLDERS, or all of them."""
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
    """Raise UserError if one of ``tasks`` (task by key) is unknown. To say so, all tasks of the
    harness are indexed, which takes 15 s.
    """
    for key, task in tasks.items():
        try:
            entries_of(task)
        except KeyError:
            near = get_close_matches(task, index(everything=True), n=3)
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise UserError(
                f"suite.tasks.{key}.task: {task!r} is neither a task of tasks/ nor of the harness"
                f"{hint}"
            ) from None


def check_file(name: str, task: str, key: str, several: bool = False) -> None:
    """Raise UserError if ``task``'s file has no figure ``key``, or if ``several`` answers are to be
    drawn to its prompts and cannot be. The figures of a group are checked later.
    """
    entry = entries_of(task)[task]
    what = "is several tasks" if entry.kind in (Kind.GROUP, Kind.TAG) else ""
    config = {}
    if entry.kind is Kind.TASK:
        config = load_yaml(entry.yaml_path, resolve_func=False, recursive=True)
        if (kind := config.get("output_type", "generate_until")) != "generate_until":
            what = f"generates no answers: {kind}"
    if several and what:
        raise UserError(f"suite.pass_at_k.tasks: {name} {what}")
    metrics = [str(each["metric"]) for each in config.get("metric_list", [])]
    if metrics and not any("." in metric for metric in metrics):  # a function has another name
        refuse_key(name, key, metrics, config.get("filter_list"))


def refuse_key(entry: str, key: str, metrics: list[str], filters: list[Any] | None) -> None:
    """Raise UserError unless ``key`` is one of ``metrics`` with one of ``filters``."""
    names = [each["name"] for each in filters or [{"name": "none"}]]
    known = [f"{metric},{name}" for metric in metrics for name in names]
    if key not in known:
        raise UserError(f"suite.tasks.{entry}.key: {key!r} is not one of {', '.join(known)}")


def leaves(task: str, entries: Mapping[str, Entry]) -> Iterator[Entry]:
    """The single tasks behind a name, also behind groups and tags."""
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


@contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """Silence the harness below ``level``, and show its progress bars only on terminals."""
    logger = logging.getLogger("lm_eval")
    before = logger.level, lm_eval.api.task.tqdm
    logger.setLevel(level)
    lm_eval.api.task.tqdm = partial(tqdm, desc="prompts", leave=False, disable=None)
    try:
        yield
    finally:
        logger.setLevel(before[0])
        lm_eval.api.task.tqdm = before[1]
