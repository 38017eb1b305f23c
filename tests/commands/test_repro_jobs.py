"""`make repro JOBS=2`: a little pipeline of DVC's, its stages side by side."""

import re
from pathlib import Path

import pytest
import yaml

from pipelines.host.dvc import pipeline_alone
from pipelines.parallel import repro
from tests.support.mutants import rejects
from tests.support.project_copy import Project

pytestmark = pytest.mark.slow

STAGES = {
    "look": {"cmd": "cp source in", "always_changed": True, "outs": [{"in": {"cache": False}}]},
    "a": {"cmd": "cp in a", "deps": ["in"], "outs": ["a"]},
    "b": {"cmd": "cp in b", "deps": ["in"], "outs": ["b"]},
    "c": {"cmd": "cat a b > c", "deps": ["a", "b"], "outs": ["c"]},
}


def change_command(stage, command):
    stages = yaml.safe_load(Path("dvc.yaml").read_text())
    stages["stages"][stage]["cmd"] = command
    Path("dvc.yaml").write_text(yaml.safe_dump(stages))


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    project = Project(tmp_path, fresh=False)
    project.ok("git", "init", "-q")
    project.ok("dvc", "init", "-q")
    monkeypatch.chdir(tmp_path)
    Path("source").write_text("1")
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))

    def run():
        """Stages that were started, and all that was said."""
        with pipeline_alone() as lock:
            repro.side_by_side([{}, {}], {"b": 1.0}, Path("logs"), lock)
        said = capfd.readouterr()
        return set(re.findall(r"^(\S+): done in ", said.err, re.M)), said.err + said.out

    return run


@rejects(
    "repro.side_by_side: «graph.downstream→set»(", "stages after a changed one left as they are"
)
def test_all_stages_run_and_later_what_comes_after_a_change(run):
    ran, said = run()
    assert ran == set(STAGES)
    assert Path("c").read_text() == "11"
    assert "4 of 4 stages" in said
    assert re.findall("Running stage '(.*)'", Path("logs/repro.log").read_text()) == ["look"]
    assert run()[0] == {"look"}
    change_command("a", "echo 2 > a")
    ran, _ = run()
    assert ran == {"look", "a", "c"}
    assert Path("c").read_text() == "2\n1"
    Path("source").write_text("3")
    assert run()[0] == set(STAGES)
    assert Path("c").read_text() == "2\n3"


def test_what_is_changed_meanwhile_runs_again_and_is_named(run):
    change_command("c", "cat a b > c; echo 2 > source")
    _, said = run()
    assert Path("c").read_text() == "2\n2\n"
    assert "run again: a, b, c" in said
