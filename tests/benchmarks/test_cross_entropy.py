from benchmarks import cross_entropy
from tests.benchmarks.checks import quick_figures


def test_it_runs():
    found = quick_figures(cross_entropy)
    assert "V = 101, float32: options ÷ ours, time" in found
    assert "V = 101, bf16: options ÷ ours, time" not in found
