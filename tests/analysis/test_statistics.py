"""Errors over documents, and the rule for differences between samples of seeds."""

from math import isnan, nan, sqrt
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.stats import ttest_ind

from ftmodel.analysis.statistics import difference, spread_within


def test_spread_within_samples_knows_no_difference_of_their_means() -> None:
    assert spread_within([[1.0, 2.0, 4.0]]) == (pytest.approx(stdev([1, 2, 4])), 2)
    within = spread_within([[1.0, 2.0], [50.0, 53.0], [7.0]])
    assert within == (pytest.approx(sqrt((0.5 + 4.5) / 2)), 2)
    assert isnan(spread_within([[1.0], [2.0]])[0])


def verdict_of(mine: list[float], others: list[float], documents: float | None = 0.0) -> str:
    return difference(mine, others, documents).verdict


SEEDS = [
    # paired, these differ by 0.0057 ± 0.0003 at every seed; each arm's own spread is 0.1
    ([0.495, 0.594, 0.694], [0.5, 0.6, 0.7], "no difference"),
    # t = 2.776 of 4 degrees of freedom; s = 0.01, so 2.776 · 0.01 · √(2/3) = 0.02267
    ([0.467, 0.477, 0.487], [0.49, 0.50, 0.51], "lower"),
    ([0.468, 0.478, 0.488], [0.49, 0.50, 0.51], "no difference"),
    ([0.513, 0.523, 0.533], [0.49, 0.50, 0.51], "higher"),
    # t = 4.303 of 2; s = 0.00707, so 0.0304: two standard errors would be 0.0141
    ([0.465, 0.475], [0.495, 0.505], "no difference"),
    ([0.464, 0.474], [0.495, 0.505], "lower"),
]


@pytest.mark.parametrize(("mine", "others", "verdict"), SEEDS)
def test_a_difference_that_seeds_may_make_is_none(
    mine: list[float], others: list[float], verdict: str
) -> None:
    assert verdict_of(mine, others) == verdict


def test_a_difference_within_the_spread_of_either_arm_is_none() -> None:
    """With many seeds the test asks for less than the spread."""
    quiet, unquiet = [0.5] * 30, [0.35, 0.45] * 15
    for pair in ((quiet, unquiet), (unquiet, quiet)):
        assert difference(*pair, 0.0).threshold == pytest.approx(stdev(unquiet))
    assert verdict_of(quiet, [0.46, 0.53] * 15) == "no difference"


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_threshold_over_seeds_is_that_of_the_t_test(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    for _ in range(20):
        mine, others = draw.normal(size=seeds).tolist(), draw.normal(1, 2, size=seeds + 1).tolist()
        spread = max(stdev(mine), stdev(others))
        apart = abs(fmean(mine) - fmean(others))
        expected = ttest_ind(mine, others).pvalue < 0.05 and apart > spread
        assert (verdict_of(mine, others) != "no difference") == expected


@pytest.mark.parametrize("seeds", [2, 3])
def test_equal_arms_are_told_apart_in_at_most_one_case_of_twenty(seeds: int) -> None:
    """Documents add no error; 3 000 draws have a sampling error of 0.4 % about 5 %."""
    draws = np.random.default_rng(seeds).normal(size=(3000, 2, seeds)).tolist()
    verdicts = [verdict_of(mine, others) != "no difference" for mine, others in draws]
    assert 0.02 < np.mean(verdicts) < 0.05 + 3 * 0.004


def test_errors_over_documents_count_beside_seeds() -> None:
    apart = ([0.40, 0.41], [0.50, 0.51])
    assert verdict_of(*apart, documents=0.04) == "lower"
    assert verdict_of(*apart, documents=0.06) == "no difference"
    assert verdict_of(*apart, documents=None) == "lower"  # not stored: seeds alone
    assert verdict_of(*apart, documents=nan) == "not known"
    assert verdict_of([0.4], [0.5], documents=0.04) == "lower"  # no seeds: documents alone
    assert verdict_of([0.4], [0.5], documents=None) == "not known"
