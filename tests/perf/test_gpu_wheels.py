"""`make gpu` ends before it installs anything where there is no GPU, and else installs PyTorch for
the driver.
"""

import os
import shutil
import subprocess

import pytest

from pipelines import ROOT
from tests.support.mutants import rejects

FOUND = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo '| Driver Version: 580.159.03  {}  |'"


def program(path, shell):
    path.write_text(f"#!/bin/sh\n{shell}\n")
    path.chmod(0o755)


@rejects('Makefile: «=→»$$torch"', "a CPU build of PyTorch left where a GPU is")
@pytest.mark.parametrize(
    ("smi", "build", "words"),
    [
        (FOUND.format("CUDA Version: 13.0"), "2.13.0", ""),
        (FOUND.format("CUDA UMD Version: 14.1"), "2.13.0", ""),
        (FOUND.format("CUDA Version: 12.2"), "2.13.0+cu126", ""),
        (FOUND.format("CUDA Version: 11.8"), None, "needs a driver that supports CUDA 12"),
        ("echo No devices found; exit 6", None, "no GPU on this machine"),
    ],
)
def test_the_build_is_exactly_the_pinned_version_for_the_drivers_cuda(tmp_path, smi, build, words):
    """A machine that no build serves is one line. pip takes `==` to allow a CPU build."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "constraints.txt").write_text("torchmetrics==1.9.0\ntorch==2.13.0\n")
    (tmp_path / "pyproject.toml").touch()
    for folder in ("bin", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "bin/nvidia-smi", smi)
    for name in ("pip", "python"):
        program(tmp_path / ".venv/bin" / name, f'echo {name} "$@" >> asked')
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["make", "gpu"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if build is None:
        assert done.returncode == 2 and not (tmp_path / "asked").exists()
        assert done.stderr.startswith("error: ") and words in done.stderr
        return
    asked, *_, last = (tmp_path / "asked").read_text().splitlines()
    index = " --extra-index-url https://download.pytorch.org/whl/cu126" * build.endswith("cu126")
    assert asked == f"pip install --quiet torch==={build}{index}"
    assert last == "python -m perf.gpu --minutes 50"
