"""Models of several sizes at constant tokens per parameter: tax, use of z and recovery of each."""

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from ftmodel.analysis.trend import MIN_POINTS
from ftmodel.designs.hinge import LN2
from pipelines.compare.arms import Arm, baselines, by_data, families
from pipelines.compare.use_of_z import UseOfZ, uses_of_z

TAX, LARGER_TAX = "tax", "tax over the larger baseline"  # a bound minus the mean NLL of a baseline
USE, RECOVERY = "use of z", "recovery"
MAX_RATIO_SPREAD = 1.1  # largest ÷ smallest tokens per parameter that count as constant


@dataclass(frozen=True)
class Rung:
    """The arms of one size. Figures are in nats per token."""

    baseline: Arm  # the plain one
    larger: Arm | None  # the baseline with most further blocks
    uses: dict[float, UseOfZ]  # of the Free Transformers, by κ

    @property
    def parameters(self) -> int:
        """Parameters of the plain baseline, by which a size is named."""
        return self.baseline.parameters

    @property
    def tokens_per_parameter(self) -> float:
        return self.baseline.trained_tokens / self.parameters

    def figures(self, kappa: float) -> dict[str, list[float]]:
        """What z costs and is worth: values of the seeds by name, empty if not known. Recovery is
        one value over all seeds, as in the section on use of z.
        """
        use, unit = self.uses[kappa], "bits_per_token"
        found = (run.figures(unit).use for run in use.arm.runs)

        def tax_over(baseline: Arm | None) -> list[float]:
            if baseline is None:
                return []
            nll = fmean(baseline.bounds(unit))
            return [(bound - nll) * LN2 for bound in use.arm.bounds(unit)]

        return {
            TAX: tax_over(self.baseline),
            LARGER_TAX: tax_over(self.larger),
            USE: [each.mean * LN2 for each in found if each],
            RECOVERY: [] if use.recovery is None else [use.recovery],
        }


@dataclass(frozen=True)
class Ladder:
    """All sizes on one data set, the smallest first."""

    data: str
    rungs: list[Rung]

    @cached_property
    def kappas(self) -> list[float]:
        """The values of κ that every size has."""
        return sorted(set.intersection(*(set(rung.uses) for rung in self.rungs)))

    def points(self, name: str, kappa: float) -> dict[float, list[float]]:
        """A figure's values by parameters, for each size that has it."""
        found = {rung.parameters: rung.figures(kappa)[name] for rung in self.rungs}
        return {size: seeds for size, seeds in found.items() if seeds}


def ladders(arms: list[Arm]) -> list[Ladder]:
    """A ladder for each data set with three sizes or more at constant tokens per parameter."""
    return [each for data, alike in by_data(arms).items() if (each := ladder(data, alike))]


def ladder(data: str, arms: list[Arm]) -> Ladder | None:
    rungs = [made for family in families(arms) if (made := rung(family))]
    rungs.sort(key=lambda each: each.parameters)
    sizes = {each.parameters for each in rungs}
    if not len(sizes) == len(rungs) >= MIN_POINTS:
        return None
    ratios = [each.tokens_per_parameter for each in rungs]
    whole = Ladder(data, rungs)
    return whole if max(ratios) <= MAX_RATIO_SPREAD * min(ratios) and whole.kappas else None


def rung(family: list[Arm]) -> Rung | None:
    """The rung of a family; None without a plain baseline or a Free Transformer."""
    uses: dict[float, UseOfZ] = {}
    for use in uses_of_z(family):
        if use.arm.preset_design:
            uses.setdefault(use.arm.run.kappa_bits or 0.0, use)
    controls = baselines(family)
    if not uses or not controls or not controls[0].plain:
        return None
    larger = [each for each in controls[1:] if not each.run.random_prefix]
    return Rung(controls[0], larger[-1] if larger else None, uses)
