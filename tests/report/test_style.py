"""Where values stand on an axis."""

import pytest

from pipelines.report.style import scale


@pytest.mark.parametrize(
    ("values", "log", "places"),
    [
        ([1, 2, 4], False, {1: 1, 2: 2, 4: 4}),
        ([1, 2, 8], False, {1: 0, 2: 1, 8: 3}),
        ([0, 1, 2], True, {0: -1, 1: 0, 2: 1}),
        (["a", "b"], False, {"a": -1, "b": -2}),
        ([0.0, None], True, {0.0: 0.0, None: -1}),
    ],
)
def test_places_on_the_axis(values, log, places):
    assert scale(values, log).places == places


def test_many_values_are_not_all_labelled():
    assert len(scale([1 + 0.01 * i for i in range(100)]).ticks()) == 12
    assert scale([1.0, 1.01, 2.0]).ticks() == [1.0, 2.0]
