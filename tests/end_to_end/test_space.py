"""Paths with a space: Ray and PyTorch's compiler cannot be called there, and are refused at once.
All else works there, as `finished` shows, whose folder and Python have such paths.
"""

import subprocess
import tempfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipelines import cli
from pipelines.cluster.connection import connect
from pipelines.common import shell_paths
from pipelines.common.errors import UserError
from pipelines.common.shell_paths import special
from pipelines.config.schema import Compute
from pipelines.train import stage
from pipelines.train.core import acceleration
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.training import RUN
from tests.train.test_acceleration import make

PYTHON = "/home/me/my lab/.venv/bin/python"


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/home/josé/ラボ/a+b@c=d,e:f%g_h-i.j/python", True),
        (PYTHON, False),
        ("/home/O'Brien/python", False),
        ("/home/me/lab(2)/python", False),
        ("/home/me/$lab/python", False),
    ],
)
def test_which_paths_a_shell_takes_for_one_word(path, whole):
    assert special([path]) == (None if whole else path)
    said = subprocess.run(["bash", "-c", f"printf '%s|' {path}"], capture_output=True, text=True)
    assert (said.stdout == f"{path}|") == whole


@rejects(
    "    if path := ray_path():",
    "    if (path := ray_path()) is False:",
    "a path with a space given to Ray, which waits for ever",
)
@pytest.mark.parametrize(
    ("name", "compute", "address"),
    [
        ("train", {"workers": 2}, ""),
        ("train", {}, "127.0.0.1:9"),
        ("evaluate", {}, "127.0.0.1:9"),
        ("train", {"compile": True}, ""),
    ],
)
def test_a_stage_is_refused_before_it_is_imported(workspace, monkeypatch, name, compute, address):
    """Ray would wait for its workers for ever."""
    params = OmegaConf.load("params.yaml")
    params.compute.update(compute)
    OmegaConf.save(params, "params.yaml")
    monkeypatch.setattr(shell_paths.sys, "executable", PYTHON)
    monkeypatch.setattr(tempfile, "tempdir", "/t m p")
    monkeypatch.setenv("RAY_ADDRESS", address)
    words = f"{PYTHON}: Ray starts no worker"
    if "compile" in compute:
        words = (
            "compute.compile: PyTorch's compiler takes no path with a space or the like, such as /t"
        )
    with monkeypatch.context() as patch:
        patch.setattr(cli, "import_module", lambda module: pytest.fail(f"{module} was imported"))
        with pytest.raises(UserError, match=words):
            call(name, RUN)
    if name == "train":  # where something else than the command line calls it
        with pytest.raises(UserError, match=words):
            stage.main(RUN)
    assert not Path("resume").exists()


def test_no_cluster_is_joined(monkeypatch):
    monkeypatch.setattr(shell_paths.sys, "executable", PYTHON)
    with pytest.raises(UserError, match="Ray starts no worker"):
        connect()


@rejects(
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
