"""A project, and its .venv, in a folder whose name has a space."""

import subprocess
import sysconfig
import tempfile
import venv
from pathlib import Path
from urllib.parse import unquote

import pytest
from mlflow import MlflowClient

from pipelines.cluster.connection import connect
from pipelines.common import shell_paths
from pipelines.common.errors import UserError
from pipelines.common.shell_paths import special
from pipelines.config.schema import Compute
from pipelines.train import stage as train_stage
from pipelines.train.core import acceleration
from tests.support.mutants import rejects
from tests.support.project_copy import Project
from tests.support.training import RUN
from tests.train.test_acceleration import make


def spaced_python(folder: Path) -> Path:
    """A virtual environment there that has this one's packages."""
    venv.create(folder, symlinks=True)
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(site, "these.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin/python"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "my lab"
    project = Project(folder)
    project.python = spaced_python(folder / ".venv")
    return project


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/home/me/lab/.venv/bin/python", True),
        ("/home/josé/ラボ/a+b@c=d,e:f%g_h-i.j/python", True),
        ("/home/me/my lab/python", False),
        ("/home/O'Brien/python", False),
        ("/home/me/lab(2)/python", False),
        ("/home/me/$lab/python", False),
    ],
)
def test_which_paths_a_shell_takes_for_one_word(path, whole):
    assert special([path]) == (None if whole else path)
    said = subprocess.run(["bash", "-c", f"printf '%s|' {path}"], capture_output=True, text=True)
    assert (said.stdout == f"{path}|") == whole


def at_once(project, stage):
    """A stage of RUN that has to end before PyTorch, which takes seconds, is imported."""
    program = (
        "import atexit, runpy, sys; atexit.register(lambda: print('torch' in sys.modules));"
        f"sys.argv = ['{stage}', '{RUN}']; runpy.run_module('pipelines.{stage}', None, '__main__')"
    )
    done = project.run("python", "-c", program)
    assert done.stdout == "False\n"
    return done


def test_the_stage_itself_refuses_too(project, monkeypatch):
    """Where something else than the command line calls it."""
    monkeypatch.setattr(shell_paths.sys, "executable", str(project.python))
    project.compose("compute.workers=2")
    monkeypatch.chdir(project.folder)
    for refused in (lambda: train_stage.main(RUN), connect):
        with pytest.raises(UserError, match="Ray starts no worker"):
            refused()
    assert not Path("resume").exists()


@rejects(
    "common/shell_paths.py",
    "    if path := ray_path():",
    "    if (path := ray_path()) is False:",
    "a path with a space given to Ray, which waits for ever",
)
@pytest.mark.parametrize("by", ["workers", "RAY_ADDRESS"])
def test_ray_is_refused_by_name_of_the_path(project, by, monkeypatch):
    """It would wait for its workers for ever."""
    project.compose("compute.workers=2" if by == "workers" else "compute.workers=1")
    stages = ["train"] if by == "workers" else ["train", "evaluate"]
    if by == "RAY_ADDRESS":
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    before = sorted(project.folder.iterdir())
    for stage in stages:
        done = at_once(project, stage)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert f"error: {project.python}: Ray starts no worker" in done.stderr
    assert sorted(project.folder.iterdir()) == before, "something was begun"


def test_compilation_that_is_asked_for_is_refused_before_any_work(project, monkeypatch):
    folder = project.folder / "t m p"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    project.compose("compute.compile=true")
    before = sorted(project.folder.iterdir())
    done = at_once(project, "train")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "compute.compile: PyTorch's compiler takes no path with a space" in done.stderr
    assert str(folder) in done.stderr
    assert sorted(project.folder.iterdir()) == before, "something was begun"


@rejects(
    "common/shell_paths.py",
    "    return special([torch_folder(), ",
    "    return special([",
    "compilation where the compiler cannot be called",
)
@pytest.mark.parametrize("where", ["torch", "TMPDIR", "cache"])
def test_blocks_are_compiled_by_default_only_where_that_works(monkeypatch, tmp_path, capsys, where):
    monkeypatch.setattr(acceleration, "worth_compiling", lambda elements: True)
    assert acceleration.speed_up(make(), Compute(), 1e15), "it would be, elsewhere"
    assert capsys.readouterr().err == ""
    folder = str(tmp_path / "a b")
    match where:
        case "torch":
            monkeypatch.setattr(shell_paths, "torch_folder", lambda: folder)
        case "TMPDIR":
            monkeypatch.setattr(tempfile, "tempdir", folder)
        case "cache":
            monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
    assert not acceleration.speed_up(make(), Compute(), 1e15)
    said = capsys.readouterr().err
    assert said.startswith("nothing is compiled: ") and folder in said
    assert said.count("\n") == 1


@pytest.mark.slow  # every stage, each in a process of its own
def test_everything_else_works_there(project):
    project.compose("~runs.baseline", "~runs.free_k1", "~runs.text_free_k1_2", "~data.stdlib",
                    "~models.text_small")  # fmt: skip
    said = project.ok("python", "-m", "dvc", "repro")
    assert "Traceback" not in said
    folder = project.folder / "report/smoke"
    assert (folder / "index.html").exists() and "free_k1_8" in (folder / "summary.txt").read_text()
    client = MlflowClient(f"sqlite:///{project.folder}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "smoke"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert unquote(run.info.artifact_uri.removeprefix("file://")).startswith(str(project.folder))
    names = {Path(entry.path).name for entry in client.list_artifacts(run.info.run_id)}
    assert "details.json" in names
    project.ok("python", "-m", "pipelines.sample", "free_k1_8", "--groups", "1")
    project.ok("python", "-m", "pipelines.keep", "docs/kept")
    again = project.ok("python", "-m", "dvc", "repro", "--dry")
    assert "Stage 'report' didn't change" in again
