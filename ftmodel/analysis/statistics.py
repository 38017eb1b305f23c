"""Means and standard errors over documents, intervals of rates, permutation tests, and pass@k."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, nan, sqrt

import torch
from scipy.special import ndtri  # the quantile of the normal distribution
from scipy.stats import binomtest, false_discovery_control
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


def cluster_totals(scores: Tensor, clusters: Tensor) -> tuple[Tensor, Tensor]:
    """Totals (…, m) and sizes (m,) of m clusters of documents, from scores (…, n) and the clusters'
    numbers (n,) from 0. With these `mean_and_error` takes clusters, not documents, as independent.
    """
    sizes = torch.bincount(clusters.long()).double()
    totals = torch.zeros(*scores.shape[:-1], len(sizes), dtype=torch.float64)
    return totals.index_add(-1, clusters.long(), scores.double()), sizes


def wilson(rate: float, documents: int) -> tuple[float, float]:
    """95 % interval of a rate, the mean of 0 and 1 over n documents (Wilson 1927, Journal of the
    American Statistical Association 22). A rate of 0 of 16 has 0 … 0.19, where ± one standard error
    would be ± 0. Scores between 0 and 1, such as means over seeds, vary less: theirs is too wide.
    """
    z = ndtri(0.975)
    centre = rate + z**2 / (2 * documents)
    wide = z * sqrt(rate * (1 - rate) / documents + (z / (2 * documents)) ** 2)
    shrunk = 1 + z**2 / documents
    return max(0.0, (centre - wide) / shrunk), min(1.0, (centre + wide) / shrunk)


def clopper_pearson(count: int, trials: int) -> tuple[float, float]:
    """Exact 95 % interval of the probability behind a count of independent trials (Clopper &
    Pearson 1934, Biometrika 26): it holds for the smallest counts, where Wilson's need not.
    """
    interval = binomtest(count, trials).proportion_ci(0.95, method="exact")
    return float(interval.low), float(interval.high)


def jackknife(left_out: Tensor) -> float:
    """Standard error of a statistic from its values ``left_out`` (G,) without each of G groups
    (Efron & Tibshirani 1993, An Introduction to the Bootstrap, § 11.5); NaN for G < 2.
    """
    groups = len(left_out)
    if groups < 2:
        return nan
    return (left_out.var(0, correction=0) * (groups - 1)).sqrt().item()


PERMUTATIONS = 10_000  # p can be as small as one ten-thousandth: adjusted for 500 tests, 0.05


@dataclass
class Chance:
    """The value of a statistic, and its distribution under permutation."""

    value: float
    null_mean: float
    null_95: float  # 95 % quantile
    p_value: float  # (1 + permutations that reach ``value``) / (1 + permutations)


def permutation_test(values: Tensor) -> Chance:
    """Test the data's statistic, the first of ``values`` (1 + P,), against the permutations'."""
    true, null = values[0].item(), values[1:]
    return Chance(
        value=true,
        null_mean=null.mean().item(),
        null_95=null.quantile(0.95).item(),
        p_value=(1 + (null >= true).sum().item()) / (1 + len(null)),
    )


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests: of the tests below a level, the expected share that is
    false is at most the level (Benjamini & Hochberg 1995, Controlling the false discovery rate).
    """
    return false_discovery_control(p_values).tolist() if p_values else []


def pass_at_k(samples: int, right: Sequence[int], k: int) -> Tensor:
    """Unbiased estimate of pass@k from n = ``samples`` answers to each prompt, of which
    ``right`` = c are right: 1 − C(n − c, k) / C(n, k), float64, one per prompt; k in 1 … n.

    C(n − c, k) / C(n, k) is the share of the sets of k of the n answers in which none is right
    (Chen et al. 2021, Evaluating large language models trained on code, eq. 1). The similar
    1 − (1 − c/n)^k is too small on average.
    """
    sets = comb(samples, k)  # exact, however many
    return torch.tensor([1 - comb(samples - c, k) / sets for c in right], dtype=torch.float64)
