"""Models of several sizes at constant tokens per parameter: tax, use of z and recovery of each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from ftmodel.analysis.trend import MIN_POINTS
from ftmodel.designs.hinge import LN2
from pipelines.compare.arms import Arm, baselines, by_data, families
from pipelines.compare.use_of_z import UseOfZ, uses_of_z

MAX_RATIO_SPREAD = 1.1  # largest ÷ smallest tokens per parameter that count as constant


@dataclass(frozen=True)
class Rung:
    """The arms of one size. Figures are in nats per token."""

    baseline: Arm  # the plain one
    larger: Arm | None  # a baseline with further blocks: of several, that with most
    uses: dict[float, UseOfZ]  # of the Free Transformers, by κ

    @property
    def parameters(self) -> int:
        """Of the plain baseline, which is what a size is called by."""
        return self.baseline.parameters

    @property
    def tokens_per_parameter(self) -> float:
        return self.baseline.trained_tokens / self.parameters

    def taxes(self, kappa: float, larger: bool) -> list[float] | None:
        """Each seed's bound minus the mean NLL of the plain or larger baseline; None without it."""
        control = self.larger if larger else self.baseline
        if control is None:
            return None
        nll = fmean(control.bounds("bits_per_token"))
        bounds = self.uses[kappa].arm.bounds("bits_per_token")
        return [(bound - nll) * LN2 for bound in bounds]

    def use_of_z(self, kappa: float) -> list[float]:
        """Use of z of each seed."""
        runs = self.uses[kappa].arm.runs
        uses = [run.figures("bits_per_token").use for run in runs]
        return [use.mean * LN2 for use in uses if use]

    def recovery(self, kappa: float) -> list[float] | None:
        """Over all seeds, as the section on use of z has it."""
        value = self.uses[kappa].recovery
        return None if value is None else [value]


Metric = Callable[[Rung], list[float] | None]  # a figure of a size, of each seed


@dataclass(frozen=True)
class Ladder:
    """All sizes on one data set, the smallest first."""

    data: str
    rungs: list[Rung]

    @cached_property
    def kappas(self) -> list[float]:
        """Those that every size has."""
        return sorted(set.intersection(*(set(rung.uses) for rung in self.rungs)))

    def points(self, metric: Metric) -> list[tuple[int, list[float]]]:
        """Parameters and a figure of each size that has it."""
        return [(rung.parameters, figure) for rung in self.rungs if (figure := metric(rung))]


def ladders(arms: list[Arm]) -> list[Ladder]:
    """Of each data set with three sizes or more at constant tokens per parameter."""
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
    """None without a plain baseline or a Free Transformer."""
    uses: dict[float, UseOfZ] = {}
    for use in uses_of_z(family):
        if use.arm.preset_design:
            uses.setdefault(use.arm.run.kappa_bits or 0.0, use)
    controls = baselines(family)
    if not uses or not controls or not controls[0].plain:
        return None
    larger = [each for each in controls[1:] if not each.run.random_prefix]
    return Rung(controls[0], larger[-1] if larger else None, uses)
