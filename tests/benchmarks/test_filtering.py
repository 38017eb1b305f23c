from benchmarks import filtering
from tests.benchmarks.checks import quick_figures


def test_the_filter_is_set_against_the_other_bounds() -> None:
    assert list(quick_figures(filtering)) == ["tiny: 2 particles ÷ bounds"]
