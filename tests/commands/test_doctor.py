"""What the doctor finds, what it calls missing, and what it exits with."""

import shutil
import socket
from collections import namedtuple
from pathlib import Path
from threading import Event

import pytest
import torch

from pipelines import doctor
from pipelines.common import threads
from pipelines.common.atomic_files import ROOT
from pipelines.doctor import COSTS, OK, STOPS
from pipelines.suite.sandbox import run as sandbox
from tests.support.mutants import rejects

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def healthy(monkeypatch):
    """A machine that has everything; tests take things away."""
    monkeypatch.chdir(ROOT)
    for name in ("RAY_ADDRESS", "HF_HUB_OFFLINE", "HF_ENDPOINT", "CXX", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(doctor, "run", lambda *command: "true")
    monkeypatch.setattr(doctor, "answers", lambda host, port: True)
    checks = {check.__name__: check for check in doctor.CHECKS}
    checks["packages"] = lambda: doctor.Finding("packages", "all")
    monkeypatch.setattr(doctor, "CHECKS", tuple(checks.values()))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(0, 0, 50e9))
    monkeypatch.setattr(doctor.Path, "exists", lambda path: True)
    monkeypatch.setattr(threads, "idle_threads", lambda: (4, "of 4 cores others use 0.0"))
    monkeypatch.setattr(threads, "allowed_cores", lambda: 4.0)
    monkeypatch.setattr(sandbox, "unavailable", lambda: None)
    return monkeypatch


def states():
    return {finding.what: finding.state for finding in doctor.findings()}


def test_it_looks_at_everything(healthy, capsys):
    doctor.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [OK, check] for check in (
            "Python", "packages", "path", "git", "disk", "cores", "GPU", "compiler", "Ray",
            "Landlock", "hub",
        )
    ]  # fmt: skip


def take(monkeypatch, what):
    """Take one thing away from a healthy machine."""
    match what:
        case "git":
            monkeypatch.setattr(doctor.shutil, "which", lambda name: name != "git" or None)
        case "repository":
            asked = doctor.run
            monkeypatch.setattr(
                doctor, "run", lambda *command: None if "rev-parse" in command else asked(*command)
            )
        case "project":
            monkeypatch.setattr(doctor.Path, "exists", lambda path: path.name != "dvc.yaml")
        case "disk":
            monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(0, 0, 0.5e9))
        case "much disk":
            monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(0, 0, 5e9))
        case "writing":
            monkeypatch.setattr(doctor.os, "access", lambda *_: False)
        case "cluster":
            monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
            monkeypatch.setattr(doctor, "answers", lambda host, port: False)
        case "GPU":
            monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        case "compiler":
            monkeypatch.setattr(doctor.shutil, "which", lambda name: name != "g++" or None)
        case "Python.h":
            monkeypatch.setattr(doctor.Path, "exists", lambda path: path.name != "Python.h")
        case "hub":
            monkeypatch.setattr(doctor, "answers", lambda host, port: False)
        case "cores":
            monkeypatch.setattr(threads, "idle_threads", lambda: (1, "of 4 cores others use 3"))
        case "Landlock":
            monkeypatch.setattr(sandbox, "unavailable", lambda: "no Landlock")
        case "space":
            monkeypatch.setattr(doctor.sys, "executable", "/my lab/python")


@rejects(
    "doctor.py",
    "if row.state == STOPS]",
    "if row.state == OK and False]",
    "a doctor whose warnings stop nothing and whose obstacles neither",
)
@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("project", "path"),
        ("disk", "disk"),
        ("writing", "disk"),
        ("cluster", "Ray"),
    ],
)
def test_what_stops_the_pipeline_is_said_and_is_exit_code_1(healthy, capsys, what, line):
    take(healthy, what)
    with pytest.raises(SystemExit) as ended:
        doctor.main()
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert said.err == f"`make repro` cannot work here yet: {line}\n"
    assert states()[line] == STOPS and f"{STOPS}  {line} " in said.out


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("git", "git"),
        ("repository", "git"),
        ("much disk", "disk"),
        ("GPU", "GPU"),
        ("compiler", "compiler"),
        ("Python.h", "compiler"),
        ("hub", "hub"),
        ("cores", "cores"),
        ("Landlock", "Landlock"),
        ("space", "Ray"),
    ],
)
def test_what_else_is_missing_has_a_cost_and_no_exit_code(healthy, capsys, what, line):
    take(healthy, what)
    doctor.main()
    said = capsys.readouterr().out
    assert [name for name, state in states().items() if state != OK] == [line]
    (finding,) = [f for f in doctor.findings() if f.what == line]
    assert finding.state == COSTS and finding.cost and f"\n      {finding.cost}\n" in f"{said}\n"


def test_packages_are_compared_with_what_is_pinned(monkeypatch):
    assert doctor.packages().state != STOPS
    names = []
    monkeypatch.setattr(doctor, "version", lambda name: names.append(name) or "0.0.1")
    finding = doctor.packages()
    assert finding.state == COSTS and "torch 0.0.1 for " in finding.value
    assert {"torch", "ray", "click", "lm_eval"} <= {*names}

    def gone(name):
        raise doctor.PackageNotFoundError

    monkeypatch.setattr(doctor, "version", gone)
    assert doctor.packages().state == STOPS


def test_it_waits_for_no_network(monkeypatch):
    monkeypatch.setattr(doctor, "PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert doctor.answers("127.0.0.1", server.getsockname()[1])
        closed = server.getsockname()[1]
    assert not doctor.answers("127.0.0.1", closed)
    asked, over = Event(), Event()

    def resolve(*_):
        asked.set()
        over.wait()
        raise OSError

    monkeypatch.setattr(socket, "create_connection", resolve)
    assert not doctor.answers("name.that.no.one.resolves", 443)
    over.set()
    assert asked.is_set()


def test_this_machine(monkeypatch, capsys):
    """Whatever it lacks, nothing of it is a traceback."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert shutil.which("git") and Path("dvc.yaml").exists()
    assert len(list(doctor.findings())) == len(doctor.CHECKS)
    assert states()["path"] == OK or " " in str(ROOT)
