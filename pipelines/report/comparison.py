"""The arms of an experiment against its baselines, by *the* rule for differences: that of
ftmodel/analysis/statistics.py.
"""

from dataclasses import dataclass
from math import isnan

import torch

from ftmodel.analysis.statistics import Difference, difference, mean_and_error
from pipelines.artifacts.results import Estimate
from pipelines.report.arms import Arm, baselines, by_data, families


@dataclass(frozen=True)
class Comparison(Difference):
    """A figure of an arm minus another's, means over the seeds of each, in ``unit``."""

    arm: Arm
    other: Arm
    unit: str

    @property
    def words(self) -> str:
        """What the difference is set against."""
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
    documents: float | None = None,
) -> Comparison:
    """One arm against another by a figure of every seed of each.

    ``documents`` is the difference's standard error over them; where None, seeds alone decide.
    """
    found = difference(seeds, other_seeds, documents)
    return Comparison(**vars(found), arm=arm, other=other, unit=unit)


def over_documents(arm: Arm, other: Arm, unit: str) -> Estimate:
    """One bound minus the other's, means over seeds, with the error of the difference."""
    bits, other_bits = (
        torch.stack([run.document_bits() for run in each.runs]).mean(0) for each in (arm, other)
    )
    return Estimate(**mean_and_error(bits - other_bits, arm.first.details.sizes(unit)))


def contrast_bounds(arm: Arm, other: Arm, unit: str) -> Comparison:
    """One arm against another by the bounds of the same held-out documents."""
    documents = over_documents(arm, other, unit).se
    return contrast(arm, other, unit, arm.bounds(unit), other.bounds(unit), documents)


def controls(arm: Arm, arms: list[Arm]) -> list[Arm]:
    """Baselines to compare with, of the same data, model and token budget, smaller ones first.

    The plain one for every arm; those with more blocks for a Free Transformer.
    """
    if arm.baseline and not arm.run.extra_blocks:
        return []
    (family,) = [group for group in families(arms) if arm in group]
    return [other for other in baselines(family) if not (arm.baseline and other.run.extra_blocks)]


def compare(arms: list[Arm]) -> list[Comparison]:
    """The bound of each arm against that of its controls; arms without any are left out."""
    return [
        contrast_bounds(arm, other, group[0].unit)
        for group in by_data(arms).values()
        for arm in group
        for other in controls(arm, group)
    ]
