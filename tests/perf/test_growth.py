"""How cost grows: every axis is measured and drawn beside the planner."""

import os
from math import isfinite
from multiprocessing import active_children
from threading import BrokenBarrierError

import pytest

from ftmodel.model.config import ModelConfig
from perf import growth, side_by_side
from perf.growth_plot import Curve
from perf.measure import Picture

ARM = "Free Transformer"


def curve(axis, quantity="time", measured=(1.0, 2.0), planned=(1.0, 1.0)):
    return Curve(quantity, axis, ARM, "s", (1, 2), list(measured), list(planned))


def test_every_axis_has_all_its_points_and_there_are_two_pictures(monkeypatch):
    def together(*_):
        return [curve(a, q) for a in side_by_side.AXES for q in ("time", "memory")]

    monkeypatch.setattr(side_by_side, "curves", together)
    *figures, first, second = growth.measure(turns=1, quick=True)
    assert all(isinstance(p, Picture) and p.png.startswith(b"\x89PNG") for p in (first, second))
    assert all(isfinite(each.median) and each.low > 0 for each in figures)
    by_name = {each.name: each for each in figures}
    assert len(by_name) == len(figures)
    for axis in ("T", "D", "L", "B", "H", "K", "JOBS", "workers"):
        for quantity in ("time", "memory"):
            assert by_name[f"{quantity} against {axis}: farthest from the planner"].at_most == 1.15
            points = f"{quantity} ÷ planner, {ARM}, {axis} = "
            assert sum(name.startswith(points) for name in by_name) == 2
    assert not any("H = " in name for name in by_name if "baseline" in name)


def test_the_summary_names_the_ratio_farthest_from_one_either_way():
    low = curve("T", measured=[1.0, 1.0], planned=[1.0, 1.6])
    high = curve("T", measured=[1.2, 1.0], planned=[1.0, 1.0])
    farthest, *ratios = growth.summary([low, high])
    assert farthest.median == pytest.approx(1.6) and farthest.met is False
    assert [each.median for each in ratios] == pytest.approx([1, 1 / 1.6, 1.2, 1])


def test_efficiency_is_of_the_cores_in_use(monkeypatch):
    monkeypatch.setattr(side_by_side, "cores", lambda: 2)
    jobs = Curve("time", "JOBS", ARM, "s", (1, 2, 4), [10.0, 12.5, 25.0], [10.0, 10.0, 20.0])
    workers = Curve("time", "workers", ARM, "s", (1, 2, 4), [1.0, 0.625, 0.8], [1.0, 0.5, 0.5])
    found = {each.name: each.median for each in side_by_side.efficiencies([jobs, workers])}
    assert list(found)[:2] == ["JOBS = 2: speed against one", "JOBS = 2: efficiency on 2 cores"]
    assert list(found.values()) == pytest.approx([1.6, 0.8, 1.6, 0.8, 1.6, 0.8, 1.25, 0.625])
    assert side_by_side.shared((1, 2, 4), 10.0) == [10, 10, 20]


CONFIG = ModelConfig(2, 32, 1, 1, 32, 16, latent_bits=4)


@pytest.mark.slow
def test_runs_side_by_side_are_processes_that_end():
    seconds, cpu, _ = side_by_side.runs(2, CONFIG, 64, 2, 1)
    assert seconds > 0 and cpu > 0
    assert not active_children()


def killed(*_):
    os._exit(3)


@pytest.mark.slow
def test_a_run_that_dies_ends_all_and_is_an_error(monkeypatch):
    monkeypatch.setattr(side_by_side, "one_run", killed)
    monkeypatch.setattr(side_by_side, "PATIENCE", 0.1)
    with pytest.raises(BrokenBarrierError):
        side_by_side.runs(2, CONFIG, 64, 2, 1)
    assert not active_children()


@pytest.mark.cluster
def test_workers_share_the_batch_of_stage_train():
    time, memory = side_by_side.worker_curves(turns=1, quick=True)
    assert time.values == (1, 2) and memory.values == (2,)
    assert all(value > 0 for value in (*time.measured, *memory.measured))
