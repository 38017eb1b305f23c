"""Compares an experiment's arms with its baselines, by *the* rule for differences in
ftmodel/analysis/differences.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isnan

import torch

from ftmodel.analysis.differences import (
    Difference,
    DocumentError,
    Pool,
    difference,
    document_error,
    pool_seeds,
)
from pipelines.artifacts.results import Estimate
from pipelines.compare.arms import Arm, baselines, by_data, families

NOT_DECIDED = "not decided: the bound is loose"


@dataclass(frozen=True)
class Comparison(Difference):
    """An arm's figure minus another's, means over the seeds of each, in ``unit``."""

    arm: Arm
    other: Arm
    unit: str

    @property
    def worse(self) -> bool:
        """Whether the arm is worse, and not only its bound higher."""
        return self.verdict == "higher" and not self.may_be_loose

    @property
    def may_be_loose(self) -> bool:
        """Whether the verdict changes if either bound is as loose as it may be."""
        least = self.mean - self.arm.looseness(self.unit)
        most = self.mean + self.other.looseness(self.unit)
        return any(replace(self, mean=mean).verdict != self.verdict for mean in (least, most))

    @property
    def convergence(self) -> str:
        """The suffix for its number if the bound of either arm did not converge, else ""."""
        return self.arm.bound(self.unit).convergence or self.other.bound(self.unit).convergence

    @property
    def qualified_verdict(self) -> str:
        return NOT_DECIDED if self.may_be_loose else self.verdict

    @property
    def words(self) -> str:
        """The threshold for the difference and the number of seeds, in words."""
        if isnan(self.threshold):
            return "its error is not known"
        mine, others = len(self.arm.runs), len(self.other.runs)
        seeds = f"{mine} and {others} seeds" if mine + others > 2 else "one seed each"
        return f"threshold {self.threshold:.4f}, {seeds}"


def contrast(
    arm: Arm,
    other: Arm,
    unit: str,
    seeds: list[float],
    other_seeds: list[float],
    documents: DocumentError | None = None,
    pool: Pool | None = None,
) -> Comparison:
    """Compare a figure of every seed of two arms; ``documents`` and ``pool`` as in `difference`."""
    test = difference(seeds, other_seeds, documents, pool)
    return Comparison(**vars(test), arm=arm, other=other, unit=unit)


def over_documents(arm: Arm, other: Arm, unit: str) -> DocumentError:
    """Error over documents of the difference between two arms' bounds, means over seeds."""
    bits, other_bits = (
        torch.stack([run.document_bits() for run in each.runs]) for each in (arm, other)
    )
    return document_error(bits, other_bits, arm.first.details.sizes(unit))


def contrast_bounds(arm: Arm, other: Arm, unit: str, arms: list[Arm]) -> Comparison:
    """Compare one of ``arms`` with another by their bounds on the same held-out documents."""
    documents = over_documents(arm, other, unit)
    pool = pool_seeds(each.bounds(unit) for each in poolable(arm, other, arms))
    return contrast(arm, other, unit, arm.bounds(unit), other.bounds(unit), documents, pool)


def poolable(arm: Arm, other: Arm, arms: list[Arm]) -> list[Arm]:
    """Arms whose spread over seeds may stand for the two's: the families of both."""
    return [each for group in families(arms) if arm in group or other in group for each in group]


def controls(arm: Arm, arms: list[Arm]) -> list[Arm]:
    """The baselines to compare an arm with, smaller ones first: all of its family for a Free
    Transformer, only the plain one for a baseline.
    """
    if arm.plain:
        return []
    (family,) = [group for group in families(arms) if arm in group]
    return [other for other in baselines(family) if other.plain or not arm.baseline]


def from_plain(
    arms: list[Arm],
    values: Mapping[str, list[Estimate]],
    unit: str,
    documents: Callable[[Arm, Arm], DocumentError] | None = None,
) -> dict[str, Comparison]:
    """Compare arms with the plain baseline of their family by ``values``, a figure of every seed by
    arm. Without ``documents``, the error over documents, seeds alone decide.
    """
    means = {name: [value.mean for value in each] for name, each in values.items()}
    present = [arm for arm in arms if arm.name in values]
    differences = {}
    for arm in present:
        for other in (other for other in controls(arm, present) if other.plain):
            pool = pool_seeds(means[each.name] for each in poolable(arm, other, present))
            error = documents(arm, other) if documents else None
            seeds = means[arm.name], means[other.name]
            differences[arm.name] = contrast(arm, other, unit, *seeds, error, pool)
    return differences


def compare(arms: list[Arm]) -> list[Comparison]:
    """Compare each arm's bound with its controls' bounds; arms without controls are left out."""
    return [
        contrast_bounds(arm, other, arm.unit, group)
        for group in by_data(arms).values()
        for arm in group
        for other in controls(arm, group)
    ]
