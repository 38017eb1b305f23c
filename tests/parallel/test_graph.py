"""What may run, and what has to be run, by DVC's own graph."""

from pathlib import Path

import pytest
import yaml

from pipelines.parallel.scheduler import Graph, changed_stages, read_graph
from tests.support.project_copy import Project

DIAMOND = Graph({"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}, "e": {"a"}}, {"a"})


def test_what_a_stage_needs_and_what_needs_it():
    assert DIAMOND.upstream({"b"}) == {"a", "b"}
    assert DIAMOND.upstream({"d", "e"}) == set("abcde")
    assert DIAMOND.downstream({"c"}) == {"c", "d"}
    assert DIAMOND.downstream({"a"}) == set("abcde")
    assert DIAMOND.downstream(set()) == set()


def test_a_priority_is_the_cost_of_the_longest_way_to_the_end():
    costs = {"b": 3.0, "c": 5.0, "d": 1.0, "e": 4.0}
    assert DIAMOND.priorities(costs) == {"a": 6.0, "b": 4.0, "c": 6.0, "d": 1.0, "e": 4.0}


@pytest.mark.parametrize(("slots", "elapsed"), [(1, 14.5), (2, 8.5), (3, 8.0)])
def test_a_pipeline_takes_as_long_as_its_slots_need(slots, elapsed):
    """With two, c and b begin, as the longest ways, then e; d waits for both b and c."""
    seconds = {"a": 2.0, "b": 3.0, "c": 5.0, "d": 1.0, "e": 3.5}
    assert DIAMOND.elapsed(seconds, slots) == elapsed


STAGES = {
    "one": {"cmd": "echo 1 > 1", "deps": ["in"], "outs": ["1"]},
    "two": {"cmd": "echo 2 > 2", "deps": ["1"], "params": ["k"], "outs": ["2"]},
    "each": {"foreach": ["x", "y"], "do": {"cmd": "echo ${item}", "deps": ["2"]}},
    "look": {"cmd": "echo", "always_changed": True},
}


def test_graph_and_changes_are_those_of_dvc(tmp_path, monkeypatch):
    """Changed are stages whose inputs or outputs are not those of the lock."""
    project = Project(tmp_path, fresh=False)
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        project.ok(*command)
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("0")
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    Path("params.yaml").write_text("k: 1")
    assert changed_stages() == {name: [] for name in ("one", "two", "each@x", "each@y", "look")}
    graph = read_graph()
    assert graph.needs == {
        "one": set(), "two": {"one"}, "each@x": {"two"}, "each@y": {"two"}, "look": set()
    }  # fmt: skip
    assert graph.always == {"look"}
    project.ok("dvc", "repro")
    assert changed_stages() == {"look": []}
    Path("in").write_text("1")
    assert changed_stages() == {"look": [], "one": ["in"]}
    Path("params.yaml").write_text("k: 2")
    assert changed_stages() == {"look": [], "one": ["in"], "two": ["k"]}
    Path("in").write_text("0")
    Path("2").unlink()
    assert changed_stages().keys() >= {"look", "two"}
