"""Schedules in closed form."""

from math import cos, pi, sqrt

import pytest

from ftmodel.schedule import cosine, decay_start, threshold, wsd
from tests.support.mutants import rejects

WARMUP, STEPS = 10, 110


@rejects("schedule.wsd: «→1 - »start))", "zero reached at the last step of the decay")
@pytest.mark.parametrize(
    "factor", [lambda s: cosine(s, WARMUP, STEPS), lambda s: wsd(s, WARMUP, 0.2, STEPS)]
)
def test_warm_up_is_linear_and_zero_would_be_reached_one_step_after_the_last(factor):
    assert [factor(s) for s in range(WARMUP)] == [(s + 1) / WARMUP for s in range(WARMUP)]
    assert factor(WARMUP) == 1
    assert factor(STEPS - 1) > 0
    assert factor(STEPS) == pytest.approx(0, abs=1e-12)


def test_the_cosine_is_one():
    expected = [(1 + cos(pi * s / 100)) / 2 for s in range(100)]
    assert [cosine(s, WARMUP, STEPS) for s in range(WARMUP, STEPS)] == pytest.approx(expected)
    assert cosine(WARMUP, WARMUP, WARMUP) == 1  # after a run that is all warm-up
    assert cosine(WARMUP + 1, WARMUP, WARMUP + 1) == pytest.approx(0)  # a decay of one step


@rejects("schedule.wsd: «→start = warmup; »return 1 - sqrt", "decay from the end of the warm-up on")
def test_wsd_is_stable_and_then_one_minus_the_root_of_what_has_passed_of_the_decay():
    assert decay_start(0.2, STEPS) == 88
    assert [wsd(s, WARMUP, 0.2, STEPS) for s in range(WARMUP, 89)] == [1] * 79
    for s in range(88, STEPS):
        assert wsd(s, WARMUP, 0.2, STEPS) == pytest.approx(1 - sqrt((s - 88) / 22))


@pytest.mark.parametrize(
    ("decay", "steps", "start"), [(0.2, 10, 8), (0.2, 12, 10), (0.01, 10, 9), (0.999, 10, 0)]
)
def test_the_decay_is_its_share_of_whole_steps_and_at_least_one(decay, steps, start):
    assert decay_start(decay, steps) == start


def test_the_threshold_is_whole_at_the_last_step_of_its_warm_up_and_without_any_from_the_first():
    assert [threshold(s, 4) for s in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [threshold(s, 0) for s in range(3)] == [1, 1, 1]
