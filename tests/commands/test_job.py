"""Jobs: a real cluster, the upload, the folder that nodes share."""

import json
import re
from pathlib import Path

import pytest
import yaml

from pipelines.commands.job import arguments, bring
from pipelines.host.errors import UserError
from tests import ROOT
from tests.support.commands import call
from tests.support.project_copy import Project

RUNS = ("baseline", "free_k1_8")
SMALL = (
    *("experiment=smoke", "~runs.free_k1", "~runs.text_free_k1_2", "~data.stdlib"),
    "~models.text_small",
)


@pytest.fixture
def project(tmp_path):
    """A checkout of a small experiment, with files that must not be uploaded."""
    project = Project(tmp_path / "project")
    project.compose(*SMALL)
    for name in ("data/big", "checkpoints/big", "resume/big", ".venv/big", "mlflow.db"):
        path = project.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("must stay here")
    return project


@pytest.mark.cluster
def test_stages_side_by_side_as_a_job_then_another_one_and_a_sweep(two_nodes, project, tmp_path):
    shared = tmp_path / "lab"
    to = ("--address", two_nodes.dashboard, "--working-dir", ".")

    def submit(*command):
        """`ray job submit` as the README has it; returns the log."""
        words = ("python", "-m", "pipelines.cli", "job", str(shared), "--", *command)
        return project.ok("ray", "job", "submit", *to, "--", *words)

    said = submit("python", "-m", "pipelines.cli", "repro", *SMALL)
    assert "2 stages side by side; logs are in logs/smoke/\n" in said
    log = (shared / "logs/smoke/train@baseline.log").read_text()
    assert "baseline: on Ray, 1 workers of 1 CPUs" in log
    stages = yaml.safe_load((shared / "dvc.lock").read_text())["stages"]
    assert {f"evaluate@{run}" for run in RUNS} < stages.keys()
    results = json.loads((shared / "results/smoke/free_k1_8/metrics.json").read_text())
    assert results["kl_bits_per_token"] >= 0
    assert (shared / "report/smoke/index.html").exists()
    for name in ("data/big", "checkpoints/big", "resume/big", ".venv", ".git"):
        assert not (shared / name).exists(), name
    brought = json.loads((shared / ".brought.json").read_text())
    assert "params.yaml" in brought and ".dvc/config" in brought
    assert not {"data/big", "checkpoints/big", "resume/big", "mlflow.db", "dvc.lock"} & set(brought)

    assert re.findall("Running stage '([^']+)'", submit("dvc", "repro")) == ["sources"]

    page = (ROOT / "docs/cluster.md").read_text()
    rehearsed = re.search(r"job /tmp/lab -- (.* sweep sweep=smoke)$", page, re.MULTILINE)
    said = submit(
        *(*rehearsed[1].split(), "~space.run", "~space.optim"),
        *("+space.run.seed.grid_search=[1]", "compute.workers=2"),
    )
    assert "make repro EXPERIMENT=smoke_best" in said
    assert (shared / "conf/experiment/smoke_best.yaml").exists()
    assert len([*(shared / "results/sweep_smoke").glob("*/evaluation.json")]) == 1


def test_a_job_ends_as_its_command_does(tmp_path, monkeypatch):
    (tmp_path / "tree/.dvc").mkdir(parents=True)
    (tmp_path / "tree/.dvc/config").touch()
    monkeypatch.chdir(tmp_path / "tree")
    with pytest.raises(SystemExit) as ended:
        call("job", str(tmp_path / "lab"), "--", "sh", "-c", "pwd > where; exit 7")
    assert ended.value.code == 7
    assert (tmp_path / "lab/where").read_text() == f"{tmp_path / 'lab'}\n"
    with pytest.raises(UserError, match="no such command on this node"):
        call("job", str(tmp_path / "lab"), "--", "nothing_of_that_name")
    with pytest.raises(UserError, match=r"^/proc/lab: No such file"):
        call("job", "/proc/lab", "--", "true")


def test_what_is_gone_from_the_tree_goes_from_the_folder_and_what_was_made_stays(tmp_path):
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    (tree / "pipelines").mkdir(parents=True)
    (tree / ".dvc").mkdir()
    (tree / ".dvc/config").touch()
    (tree / "pipelines/old.py").write_text("old")
    (tree / "params.yaml").write_text("a: 1")
    folder.mkdir()
    (tree / "dvc.lock").write_text("of another place")
    bring(tree, folder)
    (folder / "results").mkdir()
    (folder / "results/made").write_text("made")
    (folder / "dvc.lock").write_text("of this place")
    (tree / "pipelines/old.py").rename(tree / "pipelines/new.py")
    (tree / "params.yaml").write_text("a: 2")
    bring(tree, folder)
    assert "no_scm = true" in (folder / ".dvc/config.local").read_text()
    assert not (folder / "pipelines/old.py").exists()
    assert (folder / "pipelines/new.py").read_text() == "old"
    assert (folder / "params.yaml").read_text() == "a: 2"
    assert (folder / "results/made").read_text() == "made"
    assert (folder / "dvc.lock").read_text() == "of this place"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["/lab"], "usage:"),
        (["/lab", "dvc", "repro"], "usage:"),
        (["lab", "--", "dvc", "repro"], "not an absolute path"),
        ([str(Path.cwd()), "--", "dvc"], "this is the working tree itself"),
    ],
)
def test_wrong_arguments_are_one_line(given, words):
    with pytest.raises(UserError, match=words):
        arguments(given[0], given[1:])
