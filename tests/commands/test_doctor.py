"""What the doctor finds, what it calls missing, and what it exits with."""

import re
import socket
from collections import namedtuple
from contextlib import nullcontext
from threading import Event

import pytest

from pipelines import doctor
from pipelines.common.atomic_files import ROOT
from pipelines.doctor import COSTS, OK, STOPS
from tests.support.mutants import rejects

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def healthy(monkeypatch):
    """A machine that has everything; tests take things away."""
    monkeypatch.chdir(ROOT)
    for name in ("HF_HUB_OFFLINE", "HF_ENDPOINT", "CXX", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    checks = {check.__name__: check for check in doctor.CHECKS}
    checks["packages"] = lambda: doctor.Finding("packages", "all")
    for place, value in {
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.get_device_name": lambda: "A GPU",
        "torch.cuda.device_count": lambda: 2,
        "pipelines.doctor.output_of": lambda *command: "true",
        "pipelines.doctor.answers": lambda host, port: True,
        "pipelines.doctor.CHECKS": tuple(checks.values()),
        "shutil.which": lambda name: f"/bin/{name}",
        "shutil.disk_usage": lambda _: Usage(0, 0, 50e9),
        "pathlib.Path.exists": lambda path: True,
        "pipelines.common.threads.idle_threads": lambda: (4, "of 4 cores others use 0.0"),
        "pipelines.common.threads.allowed_cores": lambda: 4.0,
        "pipelines.suite.sandbox.run.unavailable": lambda: None,
    }.items():
        monkeypatch.setattr(place, value)
    return monkeypatch


def test_it_looks_at_everything(healthy, capsys):
    doctor.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [OK, check] for check in (
            "Python", "packages", "path", "git", "disk", "cores", "GPU", "compiler", "Ray",
            "Landlock", "hub",
        )
    ]  # fmt: skip


@rejects(
    "if row.state == STOPS]",
    "if row.state == OK and False]",
    "a doctor whose warnings stop nothing and whose obstacles neither",
)
@pytest.mark.parametrize(
    ("line", "state", "place", "value"),
    [
        ("path", STOPS, "pathlib.Path.exists", lambda path: path.name != "dvc.yaml"),
        ("disk", STOPS, "shutil.disk_usage", lambda _: Usage(0, 0, 0.5e9)),
        ("disk", STOPS, "os.access", lambda *_: False),
        ("Ray", STOPS, "pipelines.doctor.answers", lambda host, port: port != 6379),
        ("git", COSTS, "shutil.which", lambda name: name != "git" or None),
        ("git", COSTS, "pipelines.doctor.output_of", lambda *words: "rev-parse" in words or "true"),
        ("disk", COSTS, "shutil.disk_usage", lambda _: Usage(0, 0, 5e9)),
        ("GPU", COSTS, "torch.cuda.is_available", lambda: False),
        ("compiler", COSTS, "shutil.which", lambda name: name != "g++" or None),
        ("compiler", COSTS, "pathlib.Path.exists", lambda path: path.name != "Python.h"),
        ("hub", COSTS, "pipelines.doctor.answers", lambda host, port: port != 443),
        ("cores", COSTS, "pipelines.common.threads.idle_threads", lambda: (1, "others use 3")),
        ("Landlock", COSTS, "pipelines.suite.sandbox.run.unavailable", lambda: "no Landlock"),
        ("Ray", COSTS, "sys.executable", "/my lab/python"),
    ],
)
def test_what_is_missing_has_a_cost_and_only_an_obstacle_has_exit_code_1(
    healthy, capsys, line, state, place, value
):
    healthy.setattr(place, value)
    with pytest.raises(SystemExit, match=r"^1$") if state == STOPS else nullcontext():
        doctor.main()
    said = capsys.readouterr()
    obstacle = f"`make repro` cannot work here yet: {line}\n"
    assert said.err == (obstacle if state == STOPS else "")
    (finding,) = [f for f in doctor.all_findings() if f.state != OK]
    assert (finding.what, finding.state) == (line, state) and finding.cost
    assert re.search(rf"^{state} +{line} .*\n      {re.escape(finding.cost)}$", said.out, re.M)


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
    monkeypatch.setattr(doctor, "NETWORK_SECONDS", 0.1)
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


def test_nothing_that_this_machine_lacks_is_a_traceback(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    states = {finding.what: finding.state for finding in doctor.all_findings()}
    assert len(states) == len(doctor.CHECKS)
    assert states["path"] == OK or " " in str(ROOT)
