"""Each script runs at toy size and prints what it was made for; how fast, is its own matter."""

import re
from dataclasses import replace
from importlib import import_module
from math import isfinite

import pytest
import torch

from perf import mapper, measure, side_by_side, training
from perf.measure import Measurement
from perf.training import Step
from pipelines.host.command_line import perform
from tests.support.mutants import rejects


@pytest.mark.parametrize(
    ("script", "arguments", "row"),
    [
        ("mapper", [], r"dense ÷ exact: time \| [\d.]+ \| ratio \| ≥ 3 \| rehearsed"),
        ("training", ["llama"], r"float32, .*: ours ÷ Llama, speed \| [\d.]+ \| ratio \| ≥ 1 "),
        ("training", ["latent"], r"D = 32, .*: time, free ÷ baseline \| [\d.]+ \| ratio \| ≤ 1.0"),
    ],
)
def test_it_prints_what_it_was_made_for(script, arguments, row, capsys):
    main = import_module(f"perf.{script}").main
    perform(main, script, [*arguments, "--quick", "--turns", "1"])
    assert re.search(row, capsys.readouterr().out)


def test_the_latent_takes_memory_beyond_a_baselines_however_large_the_table():
    step = Step(replace(training.TOY_SHAPE, latent_bits=12), vocabulary=64)
    found = {each.name: each.values for each in training.beside_baseline("tiny", step, 1)}
    assert all(isfinite(value) and value > 0 for values in found.values() for value in values)
    assert found["tiny: memory, free ÷ baseline"][0] > 1


def test_the_dense_form_that_the_mapper_is_timed_against_has_the_same_gradients():
    """In float32, as they are timed."""
    arms = mapper.MapperArm(mapper.dense, 20, 9, 7), mapper.MapperArm(mapper.exact, 20, 9, 7)
    for arm in arms:
        arm()
    dense, exact = arms
    torch.testing.assert_close(dense.o.grad, exact.o.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(dense.table.grad, exact.table.grad, atol=1e-5, rtol=1e-4)


@rejects(
    "perf.measure: «torch.utils.benchmark import→time import perf_counter as»", "no wait for a GPU"
)
def test_the_clock_waits_for_a_gpu(monkeypatch):
    waits = []
    monkeypatch.setattr(measure.torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(measure.torch.accelerator, "synchronize", lambda: waits.append("gpu"))
    measure.in_turns({"a": lambda: waits.append("a"), "b": lambda: waits.append("b")}, 1)
    warm_up, turn = ["gpu", "b", "gpu", "a"], ["gpu", "a", "gpu", "gpu", "b", "gpu"]
    assert waits == warm_up + turn


@pytest.mark.slow
def test_runs_and_workers_are_trained_side_by_side_and_a_worker_with_its_part_alone(monkeypatch):
    """The first is trained; that workers of Ray are, too, is for tests/cluster."""
    asked, train, tables = [], side_by_side.training_speed, []

    def speed(folders, workers, batch, steps):
        asked.append((len(folders), workers, batch))
        if len(asked) > 1:
            return 8.0
        assert train(folders, workers, batch, steps) > 0
        return 5.0

    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", "")
    monkeypatch.setattr(side_by_side, "training_speed", speed)
    monkeypatch.setattr(side_by_side, "whole_cores", lambda: 2)
    monkeypatch.setattr(side_by_side, "print_table", lambda found, quick: tables.append(found))
    perform(side_by_side.main, "side_by_side", ["--quick", "--turns", "1"])
    assert asked == [(1, 1, 64), (2, 1, 64), (1, 1, 32), (1, 2, 64)]
    assert tables == [
        [
            Measurement("JOBS = 2: speed against one", [8 / 5], "ratio"),
            Measurement("JOBS = 2: time ÷ planner", [10 / 8], "ratio", at_most=1.15),
            Measurement("workers = 2: speed against one", [8 / 5], "ratio"),
            Measurement("workers = 2: time ÷ planner", [1.0], "ratio", at_most=1.15),
        ]
    ]
