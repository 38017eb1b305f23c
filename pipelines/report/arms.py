"""The arms of an experiment: what was run, with which seeds, and what was measured.

An arm is all runs that differ only in their seed. Arms are compared by their bound alone: the
cross-entropy of a Free Transformer under its own posterior is no language-model loss.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import nan
from statistics import fmean, stdev
from typing import Any

from pipelines.artifacts.results import Estimate, Measured
from pipelines.config.schema import Run


def over_seeds(found: list[Estimate]) -> Estimate:
    """The mean of the seeds. They are scored on the same documents, so that their errors do not
    average out: the error of the mean is at most the mean of theirs.
    """
    means = [one.mean for one in found]
    spread = stdev(means) if len(means) > 1 else nan
    return Estimate(fmean(means), fmean(one.se for one in found), spread)


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed, one for each seed."""

    name: str
    runs: list[Measured]

    @property
    def first(self) -> Measured:
        """Any of the runs, for what they have in common."""
        return self.runs[0]

    @property
    def run(self) -> Run:
        """The specification of the first; all but its seed is that of the arm."""
        return self.first.run

    @property
    def seeds(self) -> list[int]:
        return [one.run.seed for one in self.runs]

    @property
    def baseline(self) -> bool:
        return self.first.baseline

    @property
    def kind(self) -> str:
        if not self.baseline:
            return "Free Transformer"
        extra = self.run.extra_blocks
        return f"baseline + {extra} block{'s' * (extra > 1)}" if extra else "baseline"

    @property
    def warmup(self) -> str:
        """How many steps it took κ to rise from 0, in words; empty if it did not."""
        steps = 0 if self.baseline else self.run.kappa_warmup_steps
        return f"κ rose from 0 over {steps:,} steps" if steps else ""

    @property
    def title(self) -> str:
        """Name and κ, in words."""
        if self.baseline:
            return f"{self.name}: no latent"
        unit = "bit" if (self.run.kappa_bits or 0) <= 1 else "bits"
        return f"{self.name}: κ = {self.first.kappa} {unit} per token"

    @property
    def unit(self) -> str:
        return self.first.unit

    @property
    def parameters(self) -> int:
        return int(self.first.metrics["parameters"])

    @property
    def trained_tokens(self) -> int:
        return int(self.first.metrics["trained_tokens"])

    @property
    def collapsed(self) -> list[int]:
        """The seeds whose latent collapsed."""
        return [one.run.seed for one in self.runs if one.collapsed]

    @property
    def collapse(self) -> str:
        """`collapsed`, or of how many seeds, or nothing."""
        if not self.collapsed or len(self.collapsed) == len(self.runs):
            return "collapsed" if self.collapsed else ""
        return f"{len(self.collapsed)} of {len(self.runs)} collapsed"

    def figure(self, key: str, unit: str | None = None) -> Estimate | None:
        """A measured figure over the seeds, or None if some seed has no such figure."""
        found = [one.figure(key, unit or self.unit) for one in self.runs]
        present = [one for one in found if one]
        return over_seeds(present) if len(present) == len(found) else None

    def bound(self, unit: str | None = None) -> Estimate:
        return over_seeds([one.bound(unit or self.unit) for one in self.runs])

    def estimate(self, key: str) -> Estimate | None:
        """A figure in a unit of its own over the seeds that have it, or None if none has."""
        found = [estimate for one in self.runs if (estimate := one.estimate(key))]
        return over_seeds(found) if found else None

    @cached_property
    def gap(self) -> Estimate | None:
        """Bound minus the exact entropy, nats per token, where the process is known."""
        return self.estimate("gap_nats_per_token")

    @cached_property
    def elbo_gap(self) -> Estimate | None:
        """The same of the ELBO bound, of a Free Transformer."""
        return self.estimate("elbo_gap_nats_per_token")

    @property
    def tokens_per_second(self) -> float:
        """At which it was scored, mean over seeds."""
        return fmean(one.metrics["tokens_per_second"] for one in self.runs)

    @property
    def last_third(self) -> list[Estimate]:
        """Of each seed that lists budgets, the bound averaged over those in the last third of
        training; its error over documents is not known.
        """
        found = [one.metrics["last_third"] for one in self.runs if "last_third" in one.metrics]
        return [Estimate(one[self.unit], nan) for one in found]


def recipe(run: Run) -> dict[str, Any]:
    """What the runs of an arm have in common; smaller budgets are measured on the way to one."""
    return {key: value for key, value in vars(run).items() if key not in ("seed", "budgets")}


def group_by_seed(runs: list[Measured]) -> list[Arm]:
    """The arms, in order. A run that repeats a seed tells nothing new: an arm of its own."""
    groups: dict[Any, list[list[Measured]]] = defaultdict(list)
    ordered: list[list[Measured]] = []
    for one in runs:
        run = one.run
        same = groups[tuple(recipe(run).items())]
        for group in same:
            if all(other.run.seed != run.seed for other in group):
                group.append(one)
                break
        else:
            same.append([one])
            ordered.append(same[-1])
    names = [arm_name(group) for group in ordered]
    unique = len(set(names)) == len(names)
    return [
        Arm(name if unique else group[0].name, group)
        for name, group in zip(names, ordered, strict=True)
    ]


def arm_name(runs: list[Measured]) -> str:
    """What is left of the names <arm>_s<seed>, else the name of the first run."""
    names = {one.name.removesuffix(f"_s{one.run.seed}") for one in runs}
    return names.pop() if len(names) == 1 else runs[0].name


def by_data(arms: list[Arm]) -> dict[str, list[Arm]]:
    groups: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.run.data].append(arm)
    return dict(groups)


def families(arms: list[Arm]) -> list[list[Arm]]:
    """Arms of the same data, model and token budget, which may be compared."""
    groups: dict[Any, list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.run.data, arm.run.model, arm.run.tokens].append(arm)
    return list(groups.values())


def baselines(family: list[Arm]) -> list[Arm]:
    """The plain one first; of several alike, the first."""
    found: dict[int, Arm] = {}
    for arm in family:
        if arm.baseline:
            found.setdefault(arm.run.extra_blocks, arm)
    return [found[blocks] for blocks in sorted(found)]
