"""The line through sizes against numpy's least squares."""

from math import exp, log

import numpy as np
import pytest
from scipy.stats import linregress, t

from ftmodel.analysis.differences import log_linear, power_law

SIZES = [0.3e6, 1e6, 3e6, 5e6]
VALUES = [0.031, 0.012, 0.024, 0.009]
LARGE = 124e6


def test_a_line_and_a_power_law_are_found_exactly():
    line = log_linear(SIZES, [0.3 - 0.01 * log(size) for size in SIZES])
    law = power_law(SIZES, [2.5 * size**-0.4 for size in SIZES])
    for fit, slope, value in (
        (line, -0.01, 0.3 - 0.01 * log(LARGE)),
        (law, -0.4, 2.5 * LARGE**-0.4),
    ):
        assert fit.slope == pytest.approx(slope)
        assert fit.per_tenfold == pytest.approx(slope * log(10))
        assert fit.at(LARGE).mean == pytest.approx(value)
    assert line.at(LARGE).high - line.at(LARGE).low == pytest.approx(0, abs=1e-12)


def test_the_interval_is_that_of_least_squares():
    """numpy's covariance of the coefficients, and the scatter of a further size."""
    x = np.log(SIZES)
    (slope, start), covariance = np.polyfit(x, VALUES, 1, cov=True)
    scatter = sum((VALUES - start - slope * x) ** 2) / 2
    row = np.array([log(LARGE), 1])
    wide = t.ppf(0.975, df=2) * np.sqrt(row @ covariance @ row + scatter)
    at = log_linear(SIZES, VALUES).at(LARGE)
    assert at.mean == pytest.approx(start + slope * log(LARGE))
    assert (at.high - at.mean, at.mean - at.low) == (pytest.approx(wide), pytest.approx(wide))


def test_a_power_law_is_a_line_in_both_logarithms():
    law, line = power_law(SIZES, VALUES), log_linear(SIZES, [log(value) for value in VALUES])
    assert law.slope == pytest.approx(linregress(np.log(SIZES), np.log(VALUES)).slope)
    for key in ("mean", "low", "high"):
        expected = exp(getattr(line.at(LARGE), key))
        assert getattr(law.at(LARGE), key) == pytest.approx(expected)


def test_two_sizes_and_taxes_that_are_none_have_no_fit():
    assert log_linear(SIZES[:2], VALUES[:2]) is None
    assert log_linear([1e6, 1e6, 3e6], VALUES[:3]) is None
    assert power_law([], []) is None
    for tax in (0.0, -0.1):
        assert power_law(SIZES, [0.1, tax, 0.1, 0.2]) is None


def test_a_band_beyond_floats_is_infinite():
    assert power_law([2, 3, 4], [1e-30, 1e30, 1e-30]).at(1e9).high == float("inf")
