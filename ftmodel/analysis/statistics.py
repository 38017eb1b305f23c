"""Means over documents and their standard errors."""

from math import nan

import torch
from torch import Tensor


def mean_and_error(totals: Tensor, sizes: Tensor | None = None) -> dict[str, float]:
    """Σ totals / Σ sizes and its standard error, over n documents with a total and a size each,
    (n,); sizes are 1 if none are given. The error is NaN for n = 1.

    It is the ratio estimator's error, from the spread of the residuals (delta method; Cochran 1977,
    Sampling Techniques, § 6.3): documents are independent of each other, their tokens are not.
    """
    totals = totals.double()
    sizes = torch.ones_like(totals) if sizes is None else sizes.double()
    n, mean = len(totals), totals.sum() / sizes.sum()
    if n == 1:
        return {"mean": mean.item(), "se": nan}
    residuals = totals - mean * sizes
    error = (n / (n - 1) * residuals.square().sum()).sqrt() / sizes.sum()
    return {"mean": mean.item(), "se": error.item()}


def jackknife(left_out: Tensor) -> float:
    """Standard error of a statistic from its values ``left_out`` (G,) without each of G groups
    (Efron & Tibshirani 1993, An Introduction to the Bootstrap, § 11.5); NaN for G < 2.
    """
    groups = len(left_out)
    if groups < 2:
        return nan
    return (left_out.var(0, correction=0) * (groups - 1)).sqrt().item()
