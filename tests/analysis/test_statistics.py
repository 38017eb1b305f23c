"""Means over documents and their standard errors."""

from math import isnan

import pytest
import torch
from scipy.stats import binom, binomtest

from ftmodel.analysis.statistics import clopper_pearson, cluster_totals, mean_and_error, wilson
from tests.support.mutants import rejects


@rejects("statistics.mean_and_error: «mean * sizes→totals.mean()»", "documents as if equally long")
def test_the_standard_error_of_a_mean_over_documents(rng):
    """Of different sizes, against the jackknife, which leaves out one document at a time and knows
    no formula; far from the error of documents taken to be alike in size. Documents that are each
    said 100 times over are as uncertain as before.
    """
    sizes = 10 + 500 * torch.rand(400, generator=rng, dtype=torch.float64) ** 3
    totals = sizes * (2 + 0.3 * torch.randn(400, generator=rng, dtype=torch.float64))
    figures = mean_and_error(totals, sizes)
    left_out = (totals.sum() - totals) / (sizes.sum() - sizes)
    jackknife = (399 / 400 * (left_out - left_out.mean()).square().sum()).sqrt().item()
    assert figures["mean"] == pytest.approx((totals.sum() / sizes.sum()).item())
    assert figures["se"] == pytest.approx(jackknife, rel=0.03)
    assert mean_and_error(totals / sizes.mean())["se"] > 3 * jackknife
    assert mean_and_error(100 * totals, 100 * sizes) == pytest.approx(figures)
    of_four = mean_and_error(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert of_four == pytest.approx({"mean": 2.5, "se": (5 / 3) ** 0.5 / 2})
    assert isnan(mean_and_error(torch.ones(1))["se"])


def test_clusters_of_equal_documents_are_as_uncertain_as_one_of_each():
    scores = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.5, 0.25, 1.0, 0.0]])
    clusters = torch.tensor([0.0, 1.0, 2.0, 3.0]).repeat(3)
    totals, sizes = cluster_totals(scores.repeat(1, 3), clusters)
    assert sizes.tolist() == [3] * 4
    for row, each in zip(totals, scores, strict=True):
        assert mean_and_error(row, sizes) == pytest.approx(mean_and_error(each))


@rejects("statistics.wilson: (z / (2 * documents)) ** 2«→ * 0»", "an interval of no width at 0")
@pytest.mark.parametrize("count", [0, 1, 9, 16])
def test_intervals_of_rates(count):
    """Wilson's is SciPy's; at the ends of Clopper and Pearson's, so few or so many have 2.5 %."""
    interval = binomtest(count, 16).proportion_ci(method="wilson")
    assert wilson(count / 16, 16) == pytest.approx((interval.low, interval.high))
    low, high = clopper_pearson(count, 16)
    assert binom.sf(count - 1, 16, low) == pytest.approx(0.025 if count else 1.0)
    assert binom.cdf(count, 16, high) == pytest.approx(0.025 if count < 16 else 1.0)
