"""Each measurement runs at toy size and says what it was made for; how fast, is its own matter."""

from importlib import import_module
from math import isfinite

import pytest
import torch

from perf import latent, mapper, side_by_side
from perf.__main__ import PARTS
from pipelines.artifacts import corpus

FIGURES = {  # of each some figure, and its target
    "mapper": {
        "mapper, H = 8, D = 16, 32 tokens, dense ÷ exact: time": "≥ 3",
        "mapper, H = 8, D = 16, 32 tokens, dense ÷ exact: peak memory beside the table's "
        "gradient": "≥ 20",
    },
    "latent": {"D = 32, H = 8: time": "≤ "},
    "training": {"float32, not compiled: ours ÷ Llama": "≥ 1"},
    "tokenize": {"stage ÷ tokenizers: speed": ""},
}


@pytest.mark.parametrize("name", FIGURES)
def test_it_runs_and_says_what_it_was_made_for(name, monkeypatch):
    monkeypatch.setattr(corpus, "PART_BYTES", corpus.PART_BYTES)
    figures = import_module(PARTS[name].module).measure(turns=1, quick=True)
    found = {each.name: each for each in figures}
    assert len(found) == len(figures), "two figures have one name"
    assert all(isfinite(each.high) and each.low > 0 for each in figures)
    for figure, target in FIGURES[name].items():
        assert found[figure].target.startswith(target)


def test_the_latent_takes_memory_beyond_a_baselines_however_large_the_table():
    config = latent.replace(latent.QUICK, latent_bits=12)
    found = latent.beside_baseline("tiny", config, False, False, 1)
    (memory,) = (each for each in found if each.name == "tiny: peak memory")
    assert memory.median > 1


def test_the_dense_form_that_the_mapper_is_timed_against_has_the_same_gradients():
    """In float32, as they are timed."""
    arms = mapper.MapperArm(mapper.dense, 20, 9, 7), mapper.MapperArm(mapper.exact, 20, 9, 7)
    for arm in arms:
        arm()
    one, other = arms
    torch.testing.assert_close(one.o.grad, other.o.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(one.table.grad, other.table.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_runs_and_workers_are_trained_side_by_side_and_a_worker_with_its_part_alone(monkeypatch):
    """The first is trained; that workers of Ray are, too, is for tests/cluster."""
    asked, train = [], side_by_side.training_speed

    def once(projects, workers, batch, steps):
        asked.append((len(projects), workers, batch))
        return train(projects, workers, batch, steps) if len(asked) == 1 else 1.0

    assert {*PARTS} == {*FIGURES, "side_by_side", "decoding"}  # the latter: test_record.py
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", "")
    monkeypatch.setattr(side_by_side, "training_speed", once)
    one, *_ = side_by_side.measure(turns=1, quick=True)
    assert (one.name, one.median > 0) == ("JOBS = 2: speed against one", True)
    assert asked == [(1, 1, 64), (2, 1, 64), (1, 1, 64), (1, 2, 64), (1, 1, 64), (1, 1, 32)]


def test_efficiency_is_of_the_cores_in_use(monkeypatch):
    monkeypatch.setattr(side_by_side, "whole_cores", lambda: 2)
    jobs, workers, parts = {1: 10, 2: 16, 4: 16}, {1: 10, 2: 16, 4: 12.5}, {1: 10, 2: 18, 4: 30}
    found = side_by_side.speedups(jobs, workers, parts)
    assert [each.name for each in found[:2]] == [
        "JOBS = 2: speed against one",
        "JOBS = 2: efficiency",
    ]
    expected = [1.6, 0.8, 20 / 16] * 2 + [1.6, 0.8, 18 / 16] + [1.25, 0.625, 15 / 12.5]
    assert [each.median for each in found] == pytest.approx(expected)
