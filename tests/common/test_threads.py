"""How many threads are chosen, and who has the last word."""

import os

import pytest
import torch

from pipelines.common import threads
from pipelines.common.threads import set_threads
from tests.support.mutants import rejects

CORES = 8


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 8 cores, of which others use as many as the test says."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: CORES)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)))
    monkeypatch.setattr(threads, "LIMIT", tmp_path / "cpu.max")
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)

    def choose(*shares, setting=None, limit=None):
        shares = [*shares, *[0.0] * (CORES - len(shares))]
        monkeypatch.setattr(threads.psutil, "cpu_percent", lambda _, percpu: shares)
        if limit:
            threads.LIMIT.write_text(limit)
        set_threads(setting)
        return chosen.pop() if chosen else None

    return choose


@rejects("(0)) - busy)", "(0)))", "a thread for each core, whoever uses it")
@pytest.mark.parametrize(
    ("shares", "count"), [([10.0, 5.0], 8), ([100.0], 7), ([100.0] * 8, 1), ([60.0] * 8, 3)]
)
def test_a_thread_for_each_core_that_is_idle(machine, capsys, shares, count):
    assert machine(*shares) == count
    said = capsys.readouterr().err
    assert said.startswith(f"threads: {count} (of 8 cores others use ") and said.count("\n") == 1
    assert "compute.threads" in said


def test_the_limit_of_a_container_counts(machine):
    assert machine(limit="max 100000") == 8
    assert machine(limit="200000 100000") == 2


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
