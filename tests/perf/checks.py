"""What is asked of every benchmark: that it runs, and says what it was made for."""

from math import isfinite

from perf.measure import Figure


def quick_figures(benchmark):
    """Figures by name, of a quick run of the module; none by two, and all are positive numbers."""
    figures = [each for each in benchmark.measure(turns=1, quick=True) if isinstance(each, Figure)]
    by_name = {each.name: each for each in figures}
    assert len(by_name) == len(figures), "two figures have one name"
    for each in figures:
        assert all(isfinite(v) and v > 0 for v in (each.low, each.median, each.high)), each
    return by_name
