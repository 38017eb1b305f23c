import pytest

from benchmarks import training
from tests.benchmarks.checks import quick_figures


def test_it_runs():
    pytest.importorskip("litgpt", reason="a peer; `make bench` installs it")
    found = quick_figures(training)
    assert found["float32, not compiled: ours ÷ the faster"].target == "≥ 1"
    assert found["bf16: ours, share of it"].median < 1
