"""Numbers as the report writes them."""

from math import nan

import pytest

from ftmodel.analysis.differences import Difference, SeedError
from pipelines.artifacts.results import Estimate
from pipelines.compare.arms import OverSeeds
from pipelines.report.wording import (
    count,
    difference_cell,
    estimate,
    listed,
    magnitude,
    number,
    other_error,
    p_value,
    seeds_cell,
    signed,
)

UNSURE = OverSeeds(0.5, 0.1, 0.00025, converged=False, spread=0.0625)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (number, (None,), "–"),
        (number, (nan,), "–"),
        (number, (-0.12344,), "−0.1234"),
        (number, (-0.00004,), "0.0000"),
        (number, (2.26, 1), "2.3"),
        (p_value, (0.0123456,), "0.0123"),
        (p_value, (None,), "–"),
        (signed, (0.5,), "+0.5000"),
        (signed, (-0.5, 1), "−0.5"),
        (count, (1, "seed"), "1 seed"),
        (count, (34567, "token"), "34,567 tokens"),
        (count, (0, "seed"), "0 seeds"),
        (magnitude, (1e12,), "1 T"),
        (magnitude, (1.5e9,), "1.5 B"),
        (magnitude, (1e9,), "1 B"),
        (magnitude, (9.99e8,), "999 M"),
        (magnitude, (1e6,), "1 M"),
        (magnitude, (999_999,), "999,999"),
        (listed, (["a"],), "a"),
        (listed, (["a", "b", "c"],), "a, b and c"),
        (seeds_cell, ([], 2), "–"),
        (seeds_cell, ([0.5], 2), "0.50"),
        (seeds_cell, ([1.0, 3.0], 2), "2.00 ± 1.41"),
        (estimate, (None,), "–"),
        (estimate, (Estimate(0.5, nan),), "0.5000"),
        (estimate, (Estimate(0.5, 0.25), 1), "0.5 ± 0.2"),
        (estimate, (UNSURE,), "0.5000 ± 0.1000 (not converged), filter ± 0.00025, spread 0.0625"),
        (difference_cell, (None,), "–"),
        (other_error, (None,), "–"),
    ],
)
def test_a_number_in_words(function, arguments, words):
    assert str(function(*arguments)) == words


JUDGED = 0.05, 0.05, 0.04, 0.01, None  # threshold, margins, p-value, smallest effect


@pytest.mark.parametrize(
    ("documents", "seeds", "words"),
    [
        (None, 0.02, "−0.1000, seeds ± 0.0200"),
        (nan, 0.02, "−0.1000, seeds ± 0.0200"),
        (0.01, nan, "−0.1000 ± 0.0100"),
        (0.01, 0.02, "−0.1000 ± 0.0100, seeds ± 0.0200"),
    ],
)
def test_a_difference_has_the_errors_that_are_known(documents, seeds, words):
    own = SeedError(seeds, 2)
    assert str(difference_cell(Difference(-0.1, documents, own, own, nan, *JUDGED))) == words


def test_the_error_that_does_not_decide_is_said_with_its_reason():
    def words(p, seeds=0.02):
        own, pooled = SeedError(seeds, 2), SeedError(0.01, 8)
        return str(other_error(Difference(0.1, None, own, pooled, p, *JUDGED)))

    assert words(nan) == words(0.4) == "± 0.0200 of these two alone"
    assert words(0.0312) == "± 0.0100 pooled; equal spreads are doubted, p = 0.031"
    assert words(0.001) == "± 0.0100 pooled; equal spreads are doubted, p = 0.001"
    assert words(0.0002) == "± 0.0100 pooled; equal spreads are doubted, p < 0.001"
    assert words(0.4, seeds=nan) == "–"
