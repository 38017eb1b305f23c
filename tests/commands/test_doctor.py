"""What the doctor finds, what it calls missing, and what it exits with."""

import os
import pwd
import re
import subprocess
import sys
from collections import namedtuple
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from pipelines.commands import doctor
from pipelines.commands.doctor import COSTS, OK, STOPS
from pipelines.host import errors
from pipelines.host.dvc import git_refusal
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT

Usage = namedtuple("Usage", "total used free")


def raises(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.fixture
def healthy(monkeypatch):
    """A machine that has everything; tests take things away."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    checks = {check.__name__: check for check in doctor.CHECKS}
    checks["packages"] = lambda: doctor.Finding("packages", "all")
    for place, value in {
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.get_device_name": lambda: "A GPU",
        "torch.cuda.device_count": lambda: 2,
        "torch.ones": lambda *_, device: Mock(),
        "pipelines.commands.doctor.output_of": lambda *command: (
            "true" if command[0] == "git" else "true\nmore"
        ),
        "huggingface_hub.constants.HF_HUB_OFFLINE": False,
        "pipelines.commands.doctor.CHECKS": tuple(checks.values()),
        "shutil.disk_usage": lambda _: Usage(0, 0, 10e9),
        "pathlib.Path.exists": lambda path: True,
        "pipelines.commands.doctor.git_refusal": lambda folder: None,
        "pipelines.commands.doctor.check_writable": lambda folder: None,
        "pipelines.host.pytorch.idle_threads": lambda: (4, "of 4 cores others use 0.0"),
        "pipelines.host.machine.whole_cores": lambda: 4,
        "pipelines.host.machine.allowed_memory": lambda: 1.5e9,
        "pipelines.host.compiler.compiler_failure": lambda: None,
        "pipelines.cluster.connection.check_address": lambda address: None,
    }.items():
        monkeypatch.setattr(place, value)
    return monkeypatch


def test_it_looks_at_everything(healthy, capsys):
    doctor.main.callback()
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert {state for state, _, _ in lines} == {OK}
    assert {what: value for _, what, value in lines} == {
        "packages": "all",
        "folder": f"{ROOT}, 10.0 GB free",
        "git": "true",
        "machine": "of 4 cores others use 0.0, 1.5 GB of memory",
        "GPU": "2 × A GPU, driver true",
        "compiler": "true",
        "Ray": f"{doctor.version('ray')}, 192.0.2.1:6379",
        "hub": "https://huggingface.co answers",
    }


def without(program):
    return lambda *command: None if command[0] == program else "true"


def index_locked(*command):
    return str(ROOT / "dvc.yaml") if command[-1] == "index.lock" else "true"


@pytest.mark.parametrize(
    ("line", "state", "place", "value"),
    [
        ("folder", STOPS, "pipelines.host.files.ROOT", ROOT / "docs"),
        ("folder", STOPS, "shutil.disk_usage", lambda _: Usage(0, 0, 999_999_999)),
        ("folder", STOPS, "pipelines.commands.doctor.check_writable", raises(UserError("full"))),
        ("folder", COSTS, "shutil.disk_usage", lambda _: Usage(0, 0, 9.9e9)),
        ("folder", COSTS, "pipelines.commands.doctor.has_flock", lambda folder: False),
        ("git", COSTS, "pipelines.commands.doctor.output_of", index_locked),
        ("git", STOPS, "pipelines.commands.doctor.git_refusal", lambda folder: "dubious ownership"),
        ("git", COSTS, "pipelines.commands.doctor.output_of", without("git")),
        ("git", COSTS, "pipelines.commands.doctor.in_git", lambda folder: False),
        ("machine", COSTS, "pipelines.host.machine.allowed_memory", lambda: 0.9e9),
        ("machine", COSTS, "pipelines.host.pytorch.idle_threads", lambda: (1, "others use 3")),
        ("GPU", STOPS, "torch.ones", raises(RuntimeError("no kernel image\nmore"))),
        ("GPU", COSTS, "torch.cuda.is_available", lambda: False),
        ("compiler", COSTS, "pipelines.host.compiler.compiler_failure", lambda: "no Python.h"),
        ("Ray", STOPS, "pipelines.cluster.connection.check_address", raises(UserError("away"))),
        ("Ray", COSTS, "sys.executable", "/my lab/python"),
        ("hub", COSTS, "huggingface_hub.constants.HF_HUB_OFFLINE", True),
        ("hub", COSTS, "pipelines.commands.doctor.output_of", without(sys.executable)),
    ],
)
def test_what_is_missing_has_a_cost_and_only_an_obstacle_has_exit_code_1(
    healthy, capsys, line, state, place, value
):
    healthy.setattr(place, value)
    with pytest.raises(SystemExit, match=r"^1$") if state == STOPS else nullcontext():
        doctor.main.callback()
    said = capsys.readouterr()
    assert said.err.endswith(f": {line}\n") if state == STOPS else said.err == ""
    (finding,) = [f for f in doctor.all_findings() if f.state != OK]
    assert (finding.what, finding.state) == (line, state) and finding.cost
    assert "more" not in finding.value
    assert re.search(rf"^{state} +{line} .*\n      {re.escape(finding.cost)}$", said.out, re.M)


def test_a_gpu_that_pytorch_cannot_use_is_there_with_its_driver(healthy):
    healthy.setattr("torch.cuda.is_available", lambda: False)
    healthy.setattr("torch.version.cuda", None)
    assert doctor.gpu().value == "driver true does not support this PyTorch (no CUDA)"
    healthy.setattr(doctor, "output_of", lambda *_: None)
    assert doctor.gpu().value == "none"


def test_it_waits_for_no_program_or_network(monkeypatch):
    monkeypatch.setattr(doctor, "WAIT_SECONDS", 0.1)
    assert doctor.output_of(sys.executable, "-c", "import time; time.sleep(2)") is None


def test_packages_are_compared_with_what_is_pinned(monkeypatch):
    assert doctor.packages().state != STOPS
    names = []
    monkeypatch.setattr(doctor, "version", lambda name: names.append(name) or "0.0.1")
    finding = doctor.packages()
    assert finding.state == COSTS and "torch 0.0.1 for " in finding.value
    assert {"torch", "ray", "click", "lm_eval"} <= {*names}

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    local = {name: f"{number}+cpu" for name, number in pinned.items()}
    monkeypatch.setattr(doctor, "version", lambda name: local.get(name, "1"))
    for python, state in (("3.10.9", COSTS), ("3.11.0", OK), ("3.13.0", OK), ("3.31.0", COSTS)):
        monkeypatch.setattr("platform.python_version", lambda python=python: python)
        assert doctor.packages().state == state, python

    def gone(name):
        raise doctor.PackageNotFoundError

    monkeypatch.setattr(doctor, "version", gone)
    assert doctor.packages().state == STOPS


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to another user")
def test_a_repository_of_another_user_is_refused_in_the_words_of_git(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # without anyone's safe.directory
    assert git_refusal(tmp_path) is None
    os.chown(tmp_path, 12345, 12345)
    words = f"dubious ownership.*git config --global --add safe.directory {tmp_path}"
    assert re.search(words, git_refusal(tmp_path))
    assert doctor.git().state == STOPS


def test_who_has_no_name_gets_one(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", raises(KeyError("uid not found")))
    errors.name_user()
    assert os.environ.get("USER") == f"uid{os.getuid()}"
    monkeypatch.delenv("USER")
