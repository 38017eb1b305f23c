"""Names of tasks: looked up in the smallest index, with those behind them, and near ones."""

import io
import logging
import re
from types import SimpleNamespace
from unittest.mock import Mock

import lm_eval
import pytest

from pipelines.host.errors import UserError
from pipelines.host.files import ROOT
from pipelines.suite import task_index
from pipelines.suite.task_index import (
    check_file,
    check_names,
    leaves,
    manager_of,
    quiet,
    unread_file,
)


def test_all_of_the_harness_is_indexed_for_names_that_are_nowhere_else(monkeypatch):
    names = ["ours", "task_1", "task_2", "task_3", "task_4"]
    small, whole = (Mock(task_index=names[:n], all_tasks=names[:n]) for n in (1, 5))
    monkeypatch.setattr(task_index, "manager", lambda everything: whole if everything else small)
    assert manager_of("ours") is small and manager_of("task_2") is whole
    check_names({"a": "ours", "b": "task_2"})
    for task, near in (("task_9", "; did you mean task_4, task_3, task_2?"), ("qqq", "")):
        with pytest.raises(UserError) as error:
            check_names({"a": "ours", "b": task})
        words = f"suite.tasks.b.task: {task!r} is neither a task of tasks/ nor of the harness"
        assert str(error.value) == words + near


def test_the_tasks_behind_a_name_are_those_of_its_groups_and_tags():
    def entry(kind="TASK", task=None, tags=()):
        return SimpleNamespace(kind=SimpleNamespace(name=kind), cfg={"task": task}, tags={*tags})

    entries = {
        "tag": entry("TAG", tags=["b", "group", "unknown"]),
        "group": entry("GROUP", ["c", {"task": "d"}, {"group": "inner", "task": ["x"]}]),
        "inner": entry("GROUP", "a"),
        **{name: entry() for name in "abcd"},
    }
    assert [*leaves("tag", entries)] == [entries[name] for name in "bcda"]


def test_figures_are_looked_up_in_included_files_but_not_those_of_functions(own_tasks):
    with pytest.raises(
        UserError, match=r"'acc_nrm,none' is not one of .*; did you mean acc_norm,none"
    ):
        check_file("x", "arc_challenge", "acc_nrm,none")
    with pytest.raises(UserError, match=r"x generates no answers: multiple_choice$"):
        check_file("x", "arc_challenge", "acc,none", several=True)
    own_tasks(own="task: own\nmetric_list: [{metric: !function own.score}]")
    check_file("x", "own", "score,none")


def test_a_file_that_was_not_read_is_named_with_the_reason(own_tasks):
    folder = own_tasks(broken="include: nowhere.yaml\ntask: mine_1", other="task: mine_10")
    (folder / "late.yml").write_text("task: 'mine_2'  # the second")
    assert "cannot be read: [Errno 2]" in unread_file("mine_1")
    assert unread_file("mine_2") == (
        f": {folder}/late.yml is not read, since its name does not end in .yaml"
    )
    assert unread_file("mine") == ""


def test_only_public_names_of_the_harness_are_used():
    """Their modules, what is imported from them, and attributes of its tasks and entries."""
    module = r"from lm_eval\S*(?: import .*\b|\.)_[a-z]"
    private = re.compile(module + r"|\b(?:task|entry|leaf|lm_eval)\._(?!_)")
    for path in (ROOT / "pipelines/suite").glob("*.py"):
        assert not private.findall(path.read_text()), path


def test_the_harness_is_silent_and_its_bars_leave_nothing(monkeypatch):
    logger, bar = logging.getLogger("lm_eval"), object()
    monkeypatch.setattr(lm_eval.api.task, "tqdm", bar)
    level = logger.level
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    with quiet(logging.ERROR):
        assert logger.level == logging.ERROR
        assert [*lm_eval.api.task.tqdm(range(2), file=terminal)] == [0, 1]
    assert "prompts" in terminal.getvalue() and "\n" not in terminal.getvalue()
    assert logger.level == level and lm_eval.api.task.tqdm is bar
