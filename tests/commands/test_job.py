"""Jobs: a real cluster, the upload, the folder that nodes share."""

import json
import re
from pathlib import Path

import pytest

from pipelines.common.errors import UserError
from pipelines.job import arguments, bring
from tests.support.project_copy import Project


@pytest.fixture
def head(two_nodes, monkeypatch):
    """The address for `ray job submit`."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return two_nodes.dashboard


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A checkout of a small experiment, with things in it that must not be uploaded."""
    project = Project(tmp_path_factory.mktemp("checkout") / "project")
    project.compose("~runs.free_k1", "~runs.text_free_k1_2", "~data.stdlib", "~models.text_small")
    for name in ("data/big", "checkpoints/big", "resume/big", ".venv/big", "mlflow.db"):
        path = project.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("must stay here")
    return project


def submit(project, head, shared, *command):
    """`ray job submit` as the README has it; the log and the exit code."""
    done = project.run(
        "ray", "job", "submit", f"--address={head}", "--working-dir", ".", "--",
        "python", "-m", "pipelines.job", str(shared), "--", *command,
    )  # fmt: skip
    return done.stdout + done.stderr, done.returncode


@pytest.mark.cluster
def test_a_whole_repro_and_then_a_second_one_as_jobs(project, head, tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared") / "lab"
    said, code = submit(project, head, shared, "dvc", "repro")
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

    said, code = submit(project, head, shared, "dvc", "repro")
    assert code == 0, said
    assert re.findall("Running stage '([^']+)'", said) == ["sources"]


@pytest.mark.cluster
def test_a_sweep_as_a_job(project, head, tmp_path_factory):
    shared = tmp_path_factory.mktemp("sweep") / "lab"
    sweep = ["python", "-m", "pipelines.sweep", "sweep=smoke", "space.run.seed.grid=[0]"]
    said, code = submit(project, head, shared, *sweep)
    assert code == 0, said
    assert (shared / "sweeps/smoke/report/index.html").exists()
    trials = [path for path in (shared / "sweeps/smoke/trials").iterdir()]
    assert len(trials) == 2
    for trial in trials:
        assert json.loads((trial / "result.json").read_text())["status"] == "done"


@pytest.mark.cluster
def test_a_failing_command_fails_the_job(project, head, tmp_path):
    said, code = submit(
        project, head, tmp_path / "lab", "python", "-m", "pipelines.train", "nobody"
    )
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
