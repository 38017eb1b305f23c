"""Names of tasks: looked up in the smallest index, with those behind them, and near ones."""

import io
import logging
from types import SimpleNamespace

import lm_eval
import pytest
from lm_eval.tasks._index import Entry, Kind

from pipelines.host.errors import UserError
from pipelines.suite import task_index
from pipelines.suite.task_index import check_file, check_names, entries_of, leaves, quiet


def test_all_of_the_harness_is_indexed_for_names_that_are_nowhere_else(monkeypatch):
    small = {"ours": 0}
    whole = small | dict.fromkeys(["task_1", "task_2", "task_3", "task_4"], 0)
    monkeypatch.setattr(task_index, "index", lambda everything: whole if everything else small)
    assert entries_of("ours") is small and entries_of("task_2") is whole
    check_names({"a": "ours", "b": "task_2"})
    for task, near in (("task_9", "; near names: task_4, task_3, task_2"), ("qqq", "")):
        with pytest.raises(UserError) as error:
            check_names({"a": "ours", "b": task})
        words = f"suite.tasks.b.task: {task!r} is neither a task of tasks/ nor of the harness"
        assert str(error.value) == words + near


def test_the_tasks_behind_a_name_are_those_of_its_groups_and_tags():
    def entry(name, kind=Kind.TASK, task=None, tags=()):
        return Entry(name, kind, None, {"task": task}, {*tags})

    entries = [
        entry("tag", Kind.TAG, tags=["b", "group", "unknown"]),
        entry("group", Kind.GROUP, ["c", {"task": "d"}, {"group": "inner", "task": ["x"]}]),
        entry("inner", Kind.GROUP, "a"),
        *map(entry, "abcd"),
    ]
    names = [leaf.name for leaf in leaves("tag", {each.name: each for each in entries})]
    assert names == ["b", "c", "d", "a"]


def test_figures_are_looked_up_in_included_files_but_not_those_of_functions(monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"'acc_nrm,none' is not one of acc,none, acc_norm,none$"):
        check_file("x", "arc_challenge", "acc_nrm,none")
    with pytest.raises(UserError, match=r"x generates no answers: multiple_choice$"):
        check_file("x", "arc_challenge", "acc,none", several=True)
    file = tmp_path / "own.yaml"
    file.write_text("metric_list: [{metric: !function own.score}]")
    (tmp_path / "own.py").write_text("def score(): ...")
    entry = SimpleNamespace(kind=Kind.TASK, yaml_path=file)
    monkeypatch.setattr(task_index, "entries_of", lambda _: {"own": entry})
    check_file("x", "own", "score,none")


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
