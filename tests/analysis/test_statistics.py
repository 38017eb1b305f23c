"""Means over documents and their standard errors."""

from math import isnan

import pytest
import torch

from ftmodel.analysis.statistics import mean_and_error
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
