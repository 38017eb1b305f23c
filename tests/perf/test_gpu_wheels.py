"""`make gpu` ends before it installs anything where there is no GPU, and else installs PyTorch for
the driver.
"""

import os
import shutil
import subprocess

import pytest
from packaging.specifiers import SpecifierSet

from pipelines import ROOT
from tests.support.mutants import rejects

GPU = "GPU 0: NVIDIA H200 (UUID: GPU-1)"


def program(path, shell):
    path.write_text(f"#!/bin/sh\n{shell}\n")
    path.chmod(0o755)


def make_gpu(folder, smi, *options):
    (folder / "bin").mkdir()
    program(folder / "bin/nvidia-smi", smi)
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


@rejects('Makefile: «=→»$$torch"', "a CPU build of PyTorch left where a GPU is")
@pytest.mark.parametrize(
    ("cuda", "build"),
    [
        ("CUDA Version: 13.0", "2.13.0"),
        ("CUDA UMD Version: 14.1", "2.13.0"),
        ("CUDA Version: 12.2", "2.13.0+cu126"),
        ("CUDA Version: 11.8", None),
        ("", None),
    ],
)
def test_the_build_is_exactly_the_pinned_version_for_the_drivers_cuda(tmp_path, cuda, build):
    """A driver that no build serves is one line. pip takes `==` to allow a CPU build."""
    assert not SpecifierSet("===2.13.0").contains("2.13.0+cpu")
    (tmp_path / "constraints.txt").write_text("torchmetrics==1.9.0\ntorch==2.13.0\n")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("pip", "python"):
        program(tmp_path / ".venv/bin" / name, f'echo {name} "$@" >> asked')
    done = make_gpu(tmp_path, f"echo '{GPU}'; echo '| Driver Version: 580.159.03  {cuda}  |'")
    if build is None:
        assert done.stderr.startswith("error: ") and "CUDA 12" in done.stderr
        assert done.stderr.count("error: ") == 1 and not (tmp_path / "asked").exists()
        assert done.returncode == 2
        return
    asked, *_, last = (tmp_path / "asked").read_text().splitlines()
    index = " --extra-index-url https://download.pytorch.org/whl/cu126" * build.endswith("cu126")
    assert asked == f"pip install --quiet torch==={build}{index}"
    assert last == "python -m perf.gpu --minutes 50"
