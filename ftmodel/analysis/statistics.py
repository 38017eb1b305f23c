"""Errors of means over documents, and which differences between samples of seeds count."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan, nan, sqrt
from statistics import fmean, stdev, variance

import torch
from scipy.stats import t
from torch import Tensor


def mean_and_error(totals: Tensor, sizes: Tensor | None = None) -> dict[str, float]:
    """Σ totals / Σ sizes and its standard error, of n documents with a total and a size (n,) each;
    sizes are 1 where none are given. The error is NaN for n = 1.

    It is the ratio estimator's, from the spread of the residuals (delta method; Cochran 1977,
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


@dataclass(frozen=True)
class Difference:
    """A figure of one model minus another's, means over the seeds of each."""

    mean: float
    documents: float | None  # standard error over documents; NaN: of one document; None: not stored
    seeds: float  # standard error over seeds; NaN: neither model has a second seed
    threshold: float  # what the difference has to exceed to count; NaN: not known

    @property
    def verdict(self) -> str:
        """`lower`, `higher`, `no difference`, or `not known`."""
        if isnan(self.threshold):
            return "not known"
        if not abs(self.mean) > self.threshold:
            return "no difference"
        return "lower" if self.mean < 0 else "higher"


def difference(
    seeds: list[float], other_seeds: list[float], documents: float | None = None
) -> Difference:
    """The rule for differences: a figure of every seed of a model minus that of another model.

    ``documents`` is the difference's standard error over documents; where None, seeds alone decide.

    A difference between the means over seeds counts only if it exceeds all of

    - two standard errors over documents; the same documents score both models, so that these are
      errors of the difference document by document;
    - the spread of either model: the sample standard deviation over its seeds;
    - t · s · √(1/n + 1/m), of models with n and m seeds: s is the standard deviation over seeds
      within the two, t the 97.5 % quantile of Student's t with n + m − 2 degrees of freedom. This
      t-test for two samples (Student 1908, Biometrika 6) alone tells equal models apart in one case
      of twenty, all three conditions do in fewer. It takes seeds to move both models alike; the
      seeds of other models do not enter, for the spread grows with κ.

    Seeds are not paired: runs of one seed read the same data in the same order, but no more than
    that.
    """
    s, freedom = spread_within([seeds, other_seeds])
    error = s * sqrt(1 / len(seeds) + 1 / len(other_seeds))
    limits = [stdev(sample) for sample in (seeds, other_seeds) if len(sample) > 1]
    if freedom:
        limits.append(float(t.ppf(0.975, freedom)) * error)
    if documents is not None:
        limits.append(2 * documents)
    threshold = nan if any(map(isnan, limits)) else max(limits, default=nan)
    return Difference(fmean(seeds) - fmean(other_seeds), documents, error, threshold)


def spread_within(samples: Iterable[list[float]]) -> tuple[float, int]:
    """Standard deviation within samples of unlike means, and its degrees of freedom; NaN and 0 if
    none has two values.
    """
    repeated = [sample for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in repeated)
    squares = sum((len(sample) - 1) * variance(sample) for sample in repeated)
    return (sqrt(squares / freedom) if freedom else nan), freedom
