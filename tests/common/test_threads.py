"""How many cores and how much memory there are, how many threads are chosen, and by whom."""

import os
import re

import psutil
import pytest
import torch

from pipelines.host import machine as machine_module, pytorch
from pipelines.host.machine import allowed_cores, allowed_memory, whole_cores
from pipelines.host.pytorch import set_threads
from tests import ROOT
from tests.support.mutants import rejects

CORES = 8


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 8 cores, of which others use as many as the test says."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: CORES)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)))
    monkeypatch.setattr(machine_module, "CGROUPS", tmp_path)
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)

    def choose(*shares, setting=None):
        shares = [*shares, *[0.0] * (CORES - len(shares))]
        monkeypatch.setattr(pytorch.psutil, "cpu_percent", lambda _, percpu: shares)
        set_threads(setting)
        return chosen.pop() if chosen else None

    return choose


@pytest.mark.parametrize(
    ("shares", "count"), [([10.0, 5.0], 8), ([100.0], 7), ([100.0] * 8, 1), ([60.0] * 8, 3)]
)
def test_a_thread_for_each_core_that_is_idle(machine, capsys, shares, count):
    assert machine(*shares) == count
    said = capsys.readouterr().err
    assert said.startswith(f"threads: {count} (of 8 cores others use ") and said.count("\n") == 1
    assert "compute.threads" in said


HALF_V2 = {"cpu.max": "50000 100000", "memory.max": "900"}
OPEN_V2 = {"cpu.max": "max 100000", "memory.max": "max"}
HALF_V1 = {
    "cpu/cpu.cfs_quota_us": "50000",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/memory.limit_in_bytes": "900",
}
OPEN_V1 = {**HALF_V1, "cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": f"{2**63}"}


@rejects("machine.cgroup_folders: («path→»", "inner cgroups unseen")
@rejects("machine.allowed_memory: («min→max»", "the machine's memory")
@pytest.mark.parametrize(
    ("membership", "files", "limited"),
    [
        ("0::/a", {}, False),
        ("0::/a/b", OPEN_V2 | {f"a/{k}": v for k, v in HALF_V2.items()}, True),
        ("3:cpu,cpuacct:/docker/x\n2:memory:/docker/x", HALF_V1, True),  # which is mounted alone
        (
            "3:cpu,cpuacct:/x\n2:memory:/x",
            OPEN_V1 | {path.replace("/", "/x/"): text for path, text in HALF_V1.items()},
            True,
        ),
    ],
)
def test_the_limits_of_a_container_count(
    machine, tmp_path, monkeypatch, membership, files, limited
):
    monkeypatch.setattr(machine_module, "MEMBERSHIP", tmp_path / "membership")
    for path, text in {"membership": membership, **files}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    whole = float(psutil.virtual_memory().total)
    assert allowed_memory() == (900 if limited else whole)
    assert allowed_cores() == (0.5 if limited else CORES)
    assert whole_cores() == machine() == (1 if limited else CORES)


@rejects("run.run_programs: «whole_cores→os.cpu_count»(", "programs of models on all cores")
def test_nobody_asks_another_how_many_cores_there_are():
    asked = {
        path.name
        for package in ("pipelines", "ftmodel", "perf")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"sched_getaffinity\(|cpu_count|virtual_memory", path.read_text("utf-8"))
    }
    assert asked == {"machine.py", "pytorch.py"}  # the latter: whether these cores are busy


def test_cores_that_are_not_ours_do_not_count(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {6, 7})
    assert machine(*[100.0] * 6) == 2
    assert machine(*[0.0] * 6, 100.0, 0.0) == 1


def test_the_setting_decides_then_the_environment_and_on_a_gpu_nothing_is_chosen(
    machine, monkeypatch, capsys
):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine(*[100.0] * 8, setting=5) == 5
    assert machine(*[100.0] * 8) is None
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert machine(*[100.0] * 8) is None
    assert capsys.readouterr().err == ""
