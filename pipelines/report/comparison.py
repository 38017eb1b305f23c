"""Which differences between arms count.

A difference between the means of two arms over their seeds counts only if it exceeds all of

- two standard errors over documents; the same documents score both arms, so that these are errors
  of the difference document by document;
- the spread of either arm: the sample standard deviation over its seeds;
- t · s · √(1/n + 1/m), of arms with n and m seeds: s is the standard deviation over seeds within
  the two, t the 97.5 % quantile of Student's t with n + m − 2 degrees of freedom. This t-test for
  two samples alone tells equal arms apart in one case of twenty, all three do in fewer. It takes
  seeds to move both arms alike; other arms say nothing of these two, for the spread grows with κ.

Seeds are not paired: runs of one seed read the same data in the same order, but no more than that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan, nan, sqrt
from statistics import fmean, stdev, variance

import torch
from scipy.stats import t

from ftmodel.analysis.statistics import mean_and_error
from pipelines.artifacts.results import Estimate
from pipelines.report.arms import Arm, baselines, by_data, families


@dataclass(frozen=True)
class Comparison:
    """A figure of an arm minus another's, means over the seeds of each, in ``unit``."""

    arm: Arm
    other: Arm
    unit: str
    mean: float
    documents: float | None  # standard error over documents; NaN: of one document; None: not stored
    seeds: float  # standard error over seeds; NaN: neither arm has a second seed
    threshold: float  # what the difference has to exceed; NaN: not known

    @property
    def words(self) -> str:
        """What the difference is set against."""
        if isnan(self.threshold):
            return "its error is not known"
        mine, others = len(self.arm.runs), len(self.other.runs)
        seeds = f"{mine} and {others} seeds" if mine + others > 2 else "one seed each"
        return f"threshold {self.threshold:.4f}, {seeds}"

    @property
    def verdict(self) -> str:
        """`lower`, `higher`, `no difference`, or `not known`."""
        if isnan(self.threshold):
            return "not known"
        if not abs(self.mean) > self.threshold:
            return "no difference"
        return "lower" if self.mean < 0 else "higher"


def spread_within(samples: Iterable[list[float]]) -> tuple[float, int]:
    """Standard deviation within samples of unlike means, and its degrees of freedom; NaN and 0 if
    none has two values.
    """
    repeated = [sample for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in repeated)
    squares = sum((len(sample) - 1) * variance(sample) for sample in repeated)
    return (sqrt(squares / freedom) if freedom else nan), freedom


def contrast(
    arm: Arm,
    other: Arm,
    unit: str,
    mine: list[float],
    others: list[float],
    documents: float | None = None,
) -> Comparison:
    """One arm against another by a figure of every seed of each.

    ``documents`` is the difference's standard error over them; where None, seeds alone decide.
    """
    s, freedom = spread_within([mine, others])
    seeds = s * sqrt(1 / len(mine) + 1 / len(others))
    limits = [stdev(sample) for sample in (mine, others) if len(sample) > 1]
    if freedom:
        limits.append(float(t.ppf(0.975, freedom)) * seeds)
    if documents is not None:
        limits.append(2 * documents)
    threshold = nan if any(map(isnan, limits)) else max(limits, default=nan)
    mean = fmean(mine) - fmean(others)
    return Comparison(arm, other, unit, mean, documents, seeds, threshold)


def bounds(arm: Arm, unit: str) -> list[float]:
    """The bound of each seed."""
    return [one.bound(unit).mean for one in arm.runs]


def over_documents(arm: Arm, other: Arm, unit: str) -> Estimate:
    """One bound minus the other's, means over seeds, with the error of the difference."""
    mine, others = (torch.stack([one.document_bits() for one in a.runs]).mean(0)
                    for a in (arm, other))  # fmt: skip
    return Estimate(**mean_and_error(mine - others, arm.first.document_sizes(unit)))


def controls(arm: Arm, arms: list[Arm]) -> list[Arm]:
    """Baselines to compare with, of the same data, model and token budget, smaller ones first.

    The plain one for every arm; those with more blocks for a Free Transformer.
    """
    if arm.baseline and not arm.run.extra_blocks:
        return []
    (family,) = [group for group in families(arms) if arm in group]
    return [one for one in baselines(family) if not (arm.baseline and one.run.extra_blocks)]


def compare(arms: list[Arm]) -> list[Comparison]:
    """The bound of each arm against that of its controls; arms without any are left out."""
    found = []
    for group in by_data(arms).values():
        unit = group[0].unit
        for arm in group:
            for other in controls(arm, group):
                documents = over_documents(arm, other, unit).se
                pair = bounds(arm, unit), bounds(other, unit)
                found.append(contrast(arm, other, unit, *pair, documents))
    return found
