"""`make gpu` ends before it installs anything where there is no GPU, and else installs PyTorch for
the driver.
"""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from perf.gpu import wheels
from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from tests.support.mutants import rejects

SMI = "| NVIDIA-SMI 580.159.03    Driver Version: 580.159.03    CUDA Version: 13.0     |"


def make_gpu(folder, smi, *options):
    (folder / "bin").mkdir()
    program = folder / "bin/nvidia-smi"
    program.write_text(f"#!/bin/sh\n{smi}\n")
    program.chmod(0o755)
    shutil.copy(ROOT / "Makefile", folder)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment['PATH']}"
    command = ["make", "gpu", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_without_a_gpu_nothing_is_installed(tmp_path):
    done = make_gpu(tmp_path, "echo No devices found; exit 6")
    assert done.returncode != 0
    said, *by_make = done.stderr.splitlines()
    assert said.startswith("error: no GPU on this machine") and "--rehearse" in said
    assert all(line.startswith("make: ***") for line in by_make)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "bin"]


def test_with_one_the_wheel_comes_before_what_depends_on_it(tmp_path):
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    done = make_gpu(tmp_path, "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", "--dry-run", "MINUTES=10")
    said = done.stdout
    order = ["venv --clear", "-m perf.gpu.wheels", ".[dev]", "perf.gpu --minutes 10"]
    places = [said.index(words) for words in order]
    assert places == sorted(places), said


@pytest.mark.parametrize(
    ("said", "build", "index"),
    [
        (SMI, "2.13.0", False),
        (SMI.replace("CUDA Version: 13.0", "CUDA UMD Version: 14.1"), "2.13.0", False),
        (SMI.replace("13.0", "12.2"), "2.13.0+cu126", True),
    ],
)
def test_the_build_is_the_pinned_version_for_the_drivers_cuda(said, build, index):
    version, more = wheels.wanted(said, "2.13.0")
    assert version == build and bool(more) == index
    assert all("cu126" in word for word in more[1:])


@pytest.mark.parametrize("said", [SMI.replace("13.0", "11.8"), "something else", ""])
def test_a_driver_that_no_build_serves_is_one_line(said):
    with pytest.raises(UserError, match=r"CUDA"):
        wheels.wanted(said, "2.13.0")


@rejects('f"torch==«=→»{build}"', "a CPU build of PyTorch left where a GPU is")
@pytest.mark.parametrize(
    ("installed", "again"),
    [(None, True), ("{}+cpu", True), ("2.12.0", True), ("{}", False), ("{}+cu130", False)],
)
def test_only_another_build_is_replaced(monkeypatch, installed, again):
    """`==` would leave a CPU build where it is."""
    asked, pinned = [], wheels.pinned()
    assert pinned == torch.__version__.partition("+")[0]
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(wheels.subprocess, "check_output", lambda *_, **__: SMI)
    monkeypatch.setattr(wheels.subprocess, "run", lambda command: asked.append(command) or done)
    monkeypatch.setattr(wheels, "installed", lambda: installed and installed.format(pinned))
    wheels.main()
    assert [command[-1] for command in asked] == [f"torch==={pinned}"] * again


def test_it_runs_before_any_package_is_installed(tmp_path):
    environment = os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-S", "-m", "perf.gpu.wheels"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: no GPU on this machine: nvidia-smi finds none\n"
