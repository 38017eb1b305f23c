"""Names of benchmark tasks: ours (tasks/) and the lm-evaluation-harness's."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager
from tqdm import tqdm

from pipelines.common.file_listing import Fingerprint, Folder, words_of
from pipelines.host.errors import UserError, did_you_mean, not_one_of
from pipelines.host.files import ROOT

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
def manager(everything: bool) -> TaskManager:
    """Tasks, groups and tags: ours, and the harness's in FOLDERS, or all of them."""
    folders = [] if everything else [str(HARNESS / name) for name in FOLDERS]
    with quiet():
        return TaskManager(include_path=[*folders, str(OURS)], include_defaults=everything)


def manager_of(task: str) -> TaskManager:
    """The smallest manager that knows the task; raises KeyError."""
    for everything in (False, True):
        if task in manager(everything).task_index:
            return manager(everything)
    raise KeyError(task)


def check_names(tasks: Mapping[str, str]) -> None:
    """Raise UserError if one of ``tasks`` (task by key) is unknown. To say so, all tasks of the
    harness are indexed, which takes 15 s.
    """
    for key, task in tasks.items():
        try:
            manager_of(task)
        except KeyError:
            hint = did_you_mean(task, manager(everything=True).all_tasks, at_most=3)
            raise UserError(
                f"suite.tasks.{key}.task: {task!r} is neither a task of tasks/ nor of the harness"
                f"{unread_file(task) or hint}"
            ) from None


def unread_file(task: str) -> str:
    """Why a file of tasks/ that names the task was not read; empty if there is none."""
    named = re.compile(rf"\s*(task|group|tag)\s*:\s*['\"]?{re.escape(task)}['\"]?\s*(#.*)?")
    for path in sorted(OURS.rglob("*.y*ml")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(map(named.fullmatch, lines)):
            continue
        if path.suffix != ".yaml":
            return f": {path} is not read, since its name does not end in .yaml"
        try:
            manager(everything=False).load(str(path))
        except Exception as error:  # of YAML, or of a file that it includes
            return f": {path} cannot be read: {words_of(error)}"
    return ""


def check_file(name: str, task: str, key: str, several: bool = False) -> None:
    """Raise UserError if ``task``'s file has no figure ``key``, or if ``several`` answers are to be
    drawn to its prompts and cannot be. The figures of a group are checked later.
    """
    entry = manager_of(task).task_index[task]
    what = "is several tasks" if entry.kind.name in ("GROUP", "TAG") else ""
    config = (entry.cfg or {}) if entry.kind.name == "TASK" else {}
    kind = config.get("output_type", "generate_until")
    if kind != "generate_until":
        what = f"generates no answers: {kind}"
    if several and what:
        raise UserError(f"suite.pass_at_k.tasks: {name} {what}")
    metrics = [str(each["metric"]) for each in config.get("metric_list") or []]
    if metrics and not any("." in metric for metric in metrics):  # a function has other names
        refuse_key(name, key, metrics, config.get("filter_list"))


def refuse_key(entry: str, key: str, metrics: list[str], filters: list[Any] | None) -> None:
    """Raise UserError unless ``key`` is one of ``metrics`` with one of ``filters``."""
    names = [each["name"] for each in filters or [{"name": "none"}]]
    known = [f"{metric},{name}" for metric in metrics for name in names]
    if key not in known:
        raise UserError(f"suite.tasks.{entry}.key: {not_one_of(key, known)}")


def leaves(task: str, entries: Mapping[str, Any]) -> Iterator[Any]:
    """The single tasks behind a name, also behind groups and tags."""
    entry = entries[task]
    if entry.kind.name == "TAG":
        members: list[Any] = sorted(entry.tags)
    elif entry.kind.name == "GROUP":
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
