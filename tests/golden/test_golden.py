"""Losses, gradient norms, bounds, answers and continuations of tiny models are those that were
frozen; `make golden` freezes them anew, and says what moved.

On the kind of processor that wrote a file every digit must be the same. On others numbers may
differ by 1e-4 of their value, and what hangs on single draws is not compared, because a draw beside
its threshold may fall on the other side. New continuations are not compared there either, but the
log-probabilities of the frozen ones are.
"""

import pytest

from tests.golden.curves import FAMILIES, SINGLE_DRAWS, laboratory
from tests.golden.frozen import differences, frozen_curves


@pytest.fixture(scope="module")
def folder():
    with laboratory():
        yield


@pytest.mark.parametrize("family", FAMILIES)
def test_curves_are_the_frozen_ones(folder, family):
    frozen, tolerance = frozen_curves(family)
    found = FAMILIES[family](frozen if tolerance else {})
    moved = differences(frozen, found, tolerance)
    assert not moved, "\n".join(["`make golden` freezes these anew, if they may move:", *moved])


OLD = {"a run": {"1": {"loss": "2"}, "2": {"loss": "2", "norm": "0.5"}}, "b" + SINGLE_DRAWS: {}}


def changed(step: str, **numbers: str) -> dict:
    return OLD | {"a run": OLD["a run"] | {step: OLD["a run"][step] | numbers}}


@pytest.mark.parametrize(
    ("found", "tolerance", "said"),
    [
        (OLD, 0.0, []),
        (
            changed("2", loss="2.0000001"),
            0.0,
            ["a run: loss moved at 2 from 2 to 2.0000001 (5.0e-08 of its value)"],
        ),
        (changed("2", loss="2.0000001"), 1e-4, []),
        (changed("1", loss="nan"), 1e-4, ["a run: loss moved at 1 from 2 to nan"]),
        (
            changed("2", norm="0.51"),
            1e-4,
            ["a run: norm moved at 2 from 0.5 to 0.51 (2.0e-02 of its value)"],
        ),
        ({}, 0.0, ["a run: not computed any more", "b, single draws: not computed any more"]),
        (OLD | {"c": {}}, 0.0, ["c: not frozen yet"]),
        (OLD | {"b" + SINGLE_DRAWS: {"1": {"x": "1"}}}, 1e-4, []),
        (
            OLD | {"b" + SINGLE_DRAWS: {"1": {"x": "1"}}},
            0.0,
            ["b, single draws: x moved at 1 from nothing to 1"],
        ),
    ],
)
def test_a_curve_that_moved_is_named_with_the_step_and_by_how_much(found, tolerance, said):
    assert differences(OLD, found, tolerance) == said


def test_of_several_steps_the_first_and_the_largest_change_are_said():
    """An opposite sign is no larger change than any other."""
    old = {"run": {str(i): {"loss": str(i)} for i in range(1, 5)}}
    new = {
        "run": {"1": {"loss": "1"}, "2": {"loss": "2.2"}, "3": {"loss": "6"}, "4": {"loss": "5"}}
    }
    (said,) = differences(old, new, 1e-4)
    assert said == (
        "run: loss moved at 2 from 2 to 2.2 (9.1e-02 of its value); "
        "most at 3 from 3 to 6 (5.0e-01 of its value)"
    )
