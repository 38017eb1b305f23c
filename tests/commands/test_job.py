"""Jobs: a real cluster, the upload, the folder that nodes share."""

import json
import re
from pathlib import Path

import pytest

from pipelines.common.errors import UserError
from pipelines.job import arguments, bring
from tests.support.project_copy import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A checkout of a small experiment, with files that must not be uploaded."""
    project = Project(tmp_path_factory.mktemp("checkout") / "project")
    project.compose("~runs.free_k1", "~runs.text_free_k1_2", "~data.stdlib", "~models.text_small")
    for name in ("data/big", "checkpoints/big", "resume/big", ".venv/big", "mlflow.db"):
        path = project.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("must stay here")
    return project


@pytest.fixture
def submit(two_nodes, project, monkeypatch):
    """`ray job submit` as the README has it; gives the log and the exit code."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    to = ("--address", two_nodes.dashboard, "--working-dir", ".")

    def run(shared, *command):
        job = ("python", "-m", "pipelines.job", str(shared), "--", *command)
        done = project.run("ray", "job", "submit", *to, "--", *job)
        return done.stdout + done.stderr, done.returncode

    return run


@pytest.mark.cluster
def test_a_whole_repro_a_second_one_and_a_sweep_as_jobs(submit, tmp_path):
    shared = tmp_path / "lab"
    said, code = submit(shared, "dvc", "repro")
    assert code == 0, said
    assert "baseline: on Ray, 1 workers" in said
    results = json.loads((shared / "results/smoke/free_k1_8/metrics.json").read_text())
    assert results["kl_bits_per_token"] >= 0
    assert (shared / "report/smoke/index.html").exists()
    for name in ("data/big", "checkpoints/big", "resume/big", ".venv", ".git"):
        assert not (shared / name).exists(), name
    brought = json.loads((shared / ".brought.json").read_text())
    assert "params.yaml" in brought and ".dvc/config" in brought
    assert not {"data/big", "checkpoints/big", "resume/big", "mlflow.db", "dvc.lock"} & set(brought)

    said, code = submit(shared, "dvc", "repro")
    assert code == 0, said
    assert re.findall("Running stage '([^']+)'", said) == ["sources"]

    sweep = ["python", "-m", "pipelines.sweep", "sweep=smoke", "space.run.seed.grid_search=[0]"]
    said, code = submit(shared, *sweep, "compute.workers=2")
    assert code == 0, said
    assert "make repro EXPERIMENT=smoke_best" in said
    assert (shared / "conf/experiment/smoke_best.yaml").exists()
    assert len([*(shared / "results/sweep_smoke").glob("*/evaluation.json")]) == 2


@pytest.mark.cluster
def test_a_failing_command_fails_the_job(submit, tmp_path):
    command = ("python", "-m", "pipelines.train", "nobody")
    said, code = submit(tmp_path / "lab", *command)
    assert code != 0
    assert "error: 'nobody' is not under runs in params.yaml" in said


def test_what_is_gone_from_the_tree_goes_from_the_folder_and_what_was_made_stays(tmp_path):
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    (tree / "pipelines").mkdir(parents=True)
    (tree / ".dvc").mkdir()
    (tree / ".dvc/config").touch()
    (tree / "pipelines/old.py").write_text("old")
    (tree / "params.yaml").write_text("a: 1")
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
