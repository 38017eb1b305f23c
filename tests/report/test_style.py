"""Where values stand on an axis, and how arms look."""

from pipelines.report.style import log_places, spaced, styles


def test_values_stand_at_their_logarithms_and_0_apart():
    assert log_places([4, 1, 2]) == {1: 0, 2: 1, 4: 2}
    assert log_places([1, 0, 2]) == {0: -1, 1: 0, 2: 1}


def test_many_values_are_not_all_labelled():
    assert len(spaced({1 + 0.01 * i: i for i in range(100)})) == 12
    assert spaced({1.0: 1.0, 1.01: 1.01, 2.0: 2.0}) == [1.0, 2.0]


def test_no_two_of_forty_arms_look_alike():
    looks = styles(map(str, range(40))).values()
    assert len({(look["color"], look["marker"]) for look in looks}) == 40
