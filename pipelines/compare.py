"""Which differences between arms count.

Two arms are compared document by document and seed by seed: the same documents score both, and
arms of the same seed read the training data in the same order. A difference counts only if it
exceeds two standard errors over documents, the spread over seeds, and two standard errors over
seeds.
"""

from dataclasses import dataclass
from math import isnan, nan, sqrt
from statistics import stdev, variance

import torch

from ftmodel.bounds import mean_and_error
from pipelines.arms import Arm, Estimate, Measured, by_data, families


@dataclass(frozen=True)
class Comparison:
    """An arm's bound minus another's, in ``unit``, over the seeds that both have.

    Where they share no seed, all seeds of one are set against all of the other.
    """

    arm: Arm
    other: Arm
    unit: str
    estimate: Estimate  # error over documents, and the spread of the differences over seeds
    by_seed: dict[int, float]  # the difference of each seed that both have
    pooled: float  # spread of such a difference over all comparisons on the data; NaN: no seeds

    @property
    def seeds(self) -> int:
        return len(self.by_seed) or min(len(self.arm.runs), len(self.other.runs))

    @property
    def spread(self) -> float:
        """The larger of its own and the pooled one; NaN where nothing has a second seed.

        Its own alone would not do: of two seeds, a standard deviation comes out at an eighth of the
        true one or less in one case of ten.
        """
        return max((s for s in (self.estimate.spread, self.pooled) if not isnan(s)), default=nan)

    @property
    def threshold(self) -> float:
        """What the difference has to exceed; NaN where its error is not known."""
        documents = 2 * self.estimate.se
        if isnan(self.spread) or isnan(documents):
            return documents
        return max(documents, self.spread, 2 * self.spread / sqrt(self.seeds))

    @property
    def words(self) -> str:
        """What the difference is set against."""
        if isnan(self.threshold):
            return "its error is not known"
        what = f"threshold {self.threshold:.4f}"
        if isnan(self.spread):
            return f"{what}, one seed each"
        if not self.by_seed:
            return f"{what}, other seeds"
        return f"{what}, {len(self.by_seed)} seed" + ("s" if len(self.by_seed) > 1 else "")

    @property
    def verdict(self) -> str:
        """`lower`, `higher`, or `no difference`."""
        if not abs(self.estimate.mean) > self.threshold:
            return "no difference"
        return "lower" if self.estimate.mean < 0 else "higher"


def shared_seeds(arm: Arm, other: Arm) -> list[int]:
    return [seed for seed in arm.seeds if seed in other.seeds]


def difference(arm: Arm, other: Arm, unit: str) -> Estimate:
    """One bound minus the other's: mean over the seeds that both have, else over all."""
    shared = shared_seeds(arm, other)
    mine, others = (
        [one for one in a.runs if not shared or one.run.seed in shared] for a in (arm, other)
    )
    sizes = arm.first.document_sizes(unit)
    found = mean_and_error(mean_bits(mine) - mean_bits(others), sizes)
    spread = stdev(seed_differences(arm, other, unit).values()) if len(shared) > 1 else nan
    return Estimate(**found, spread=spread)


def mean_bits(runs: list[Measured]) -> torch.Tensor:
    """Bound of each document, (n,), mean over seeds."""
    return torch.stack([one.document_bits() for one in runs]).mean(0)


def seed_differences(arm: Arm, other: Arm, unit: str) -> dict[int, float]:
    return {
        seed: arm.by_seed[seed].bound(unit).mean - other.by_seed[seed].bound(unit).mean
        for seed in shared_seeds(arm, other)
    }


def pooled(samples: list[list[float]]) -> float:
    """Standard deviation within samples of unlike means; NaN if none has two values."""
    repeated = [sample for sample in samples if len(sample) > 1]
    if not repeated:
        return nan
    squares = sum((len(sample) - 1) * variance(sample) for sample in repeated)
    return sqrt(squares / sum(len(sample) - 1 for sample in repeated))


def pooled_spread(arms: list[Arm]) -> float:
    """Spread over seeds of a difference between two arms, from all arms on one data set.

    Where no two arms that are compared share two seeds: that of a difference of runs with seeds of
    their own.
    """
    unit = arms[0].unit
    paired = pooled([list(seed_differences(a, b, unit).values()) for a, b in pairs(arms)])
    alone = [[one.bound(unit).mean for one in arm.runs] for arm in arms]
    return sqrt(2) * pooled(alone) if isnan(paired) else paired


def pairs(arms: list[Arm]) -> list[tuple[Arm, Arm]]:
    """Each arm with each of its controls."""
    return [(arm, other) for arm in arms for other in controls(arm, arms)]


def controls(arm: Arm, arms: list[Arm]) -> list[Arm]:
    """Baselines to compare with, of the same data, model and token budget, smaller ones first.

    The plain one for every arm; those with more blocks for a Free Transformer. Where one baseline
    is there twice, the one with most seeds in common.
    """
    if arm.baseline and not arm.run.extra_blocks:
        return []
    (family,) = [group for group in families(arms) if arm in group]
    found: dict[int, Arm] = {}
    for other in family:
        blocks = other.run.extra_blocks
        if other.baseline and not (arm.baseline and blocks):
            best = found.get(blocks)
            if best is None or len(shared_seeds(arm, other)) > len(shared_seeds(arm, best)):
                found[blocks] = other
    return [found[blocks] for blocks in sorted(found)]


def compare(arms: list[Arm]) -> list[Comparison]:
    """Each arm against its controls; arms without any are left out."""
    found = []
    for group in by_data(arms).values():
        unit, spread = group[0].unit, pooled_spread(group)
        found += [
            Comparison(a, b, unit, difference(a, b, unit), seed_differences(a, b, unit), spread)
            for a, b in pairs(group)
        ]
    return found


def seed_range(arms: list[Arm], unit: str) -> float | None:
    """Largest range of bounds over the seeds of an arm; None where no arm has two seeds."""
    ranges = []
    for arm in arms:
        bounds = [one.bound(unit).mean for one in arm.runs]
        if len(bounds) > 1:
            ranges.append(max(bounds) - min(bounds))
    return max(ranges, default=None)
