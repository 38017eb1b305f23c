import os

import pytest

from benchmarks import steps, training
from tests.benchmarks.checks import quick_figures


def test_it_runs():
    pytest.importorskip("litgpt", reason="a peer; `make bench` installs it")
    found = quick_figures(training)
    assert found["float32, not compiled: ours ÷ the faster"].target == "≥ 1"
    assert found["bf16, fastest: ours, share of it"].median < 1


def test_the_first_compiled_step_finds_nothing_of_earlier_runs(monkeypatch, tmp_path):
    caches = []

    def step(*_):
        return lambda: caches.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(steps, "step", step)
    monkeypatch.setattr(steps, "litgpt", steps.llama)
    monkeypatch.setattr(training, "SHAPE", training.QUICK)
    monkeypatch.setattr(training, "peak", lambda *_: 1.0)
    *_, first = training.measure(turns=1, quick=False)
    assert first.name == "first step of ours, compiled, nothing cached"
    assert [cache == str(tmp_path) for cache in caches] == [False] + [True] * 24
