"""Paths with a space, and too long ones: Ray cannot be called there, and is refused at once.
All else works there, as `finished` shows, whose folder and Python have such paths.
"""

import subprocess
from pathlib import Path

import pytest

from pipelines.cluster import preflight
from pipelines.cluster.preflight import ray_failure
from pipelines.host.errors import UserError
from pipelines.host.files import special_path
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.settings import change
from tests.support.training import RUN

PYTHON = "/home/me/my lab/.venv/bin/python"


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/home/josé/ラボ/a+b@c=d,e:f%g_h-i.j/python", True),
        (PYTHON, False),
        ("/home/O'Brien/python", False),
        ("/home/me/$lab/python", False),
    ],
)
def test_which_paths_a_shell_takes_for_one_word(path, whole):
    assert special_path([path]) == (None if whole else path)
    said = subprocess.run(["bash", "-c", f"printf '%s|' {path}"], capture_output=True, text=True)
    assert (said.stdout == f"{path}|") == whole


@rejects("preflight.check_ray: ray_failure()«→ and None»", "a path with a space", case="train-2-")
@pytest.mark.parametrize(
    ("name", "workers", "address"),
    [("train", 2, ""), ("train", 1, "127.0.0.1:9"), ("evaluate", 1, "127.0.0.1:9")],
)
def test_a_stage_is_refused_before_it_works(workspace, monkeypatch, name, workers, address):
    """Ray would wait for its workers for ever."""
    change("compute.workers", workers)
    monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("Ray was called"))
    monkeypatch.setattr(preflight.sys, "executable", PYTHON)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=f"{PYTHON}: Ray cannot start workers"):
        call(name, RUN)
    assert not Path("resume").exists()


@rejects("preflight.ray_failure: «tried.bind→»(path)", "no try")
def test_ray_needs_a_folder_that_takes_its_sockets(monkeypatch, tmp_path):
    longest = "/tmp/".ljust(39, "x")  # as docs/commands.md says
    monkeypatch.setenv("RAY_TMPDIR", f"{longest}x")
    assert f"={longest}x: {len(longest) + 1} bytes, but Ray" in (ray_failure() or "")
    monkeypatch.setenv("RAY_TMPDIR", longest)
    assert "bytes, but Ray" not in (ray_failure() or "")
    monkeypatch.setenv("RAY_TMPDIR", f"{longest}x")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert ray_failure() is None  # sockets are elsewhere
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(preflight, "MAX_SOCKET_BYTES", 10_000)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_failure() is None and not any(tmp_path.iterdir())
    monkeypatch.setenv("RAY_TMPDIR", "/proc/self")
    assert "Ray cannot make a socket there: " in (ray_failure() or "")
