"""The arms of an experiment: what was run, with which seeds, and what was measured.

An arm is all runs that differ only in their seed. Arms are compared by their bound alone: the
cross-entropy of a Free Transformer under its own posterior is not a language-model loss.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from math import hypot, inf, nan
from statistics import fmean, stdev
from typing import Any

from pipelines.artifacts.result_files import in_last_third
from pipelines.artifacts.results import Estimate, Figures
from pipelines.artifacts.run_results import RunResults
from pipelines.config.arms import kind_of
from pipelines.config.schema import Run


@dataclass(frozen=True)
class OverSeeds(Estimate):
    """A mean over the seeds of an arm."""

    spread: float = nan  # type: ignore[misc]  # sample standard deviation; NaN for one seed


def over_seeds(estimates: list[Estimate]) -> OverSeeds:
    """Mean over seeds, scored on the same documents: its error is at most the mean of theirs."""
    means = [estimate.mean for estimate in estimates]
    spread = stdev(means) if len(means) > 1 else nan
    own = [e.monte_carlo for e in estimates if e.monte_carlo is not None]
    halves = [e.half_variance for e in estimates if e.half_variance is not None]
    converged = [e.converged for e in estimates if e.converged is not None]
    return OverSeeds(
        fmean(means),
        fmean(e.se for e in estimates),
        monte_carlo=hypot(*own) / len(own) if own else None,
        half_variance=fmean(halves) if halves else None,
        converged=all(converged) if converged else None,
        spread=spread,
    )


def looseness(figures: Figures) -> float:
    """One run's looseness; see Arm.looseness."""
    if figures.filtering is None:
        return 0.0
    others = [bound.mean for bound in (figures.elbo, figures.iwae, figures.prior) if bound]
    below = figures.filtering.mean - min(others, default=inf)
    half = figures.filtering.half_variance or 0.0
    return max(half * (2 if figures.filtering.converged is False else 1), below)


def last_third(run: RunResults) -> float | None:
    """Mean bound over the budgets in the last third of training; None without budgets."""
    late = [each.figures(run.unit).bound.mean for each in in_last_third(run.evaluation.budgets)]
    return fmean(late) if late else None


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed, one for each seed."""

    name: str
    runs: list[RunResults]

    @property
    def first(self) -> RunResults:
        """Any of the runs, for what they share."""
        return self.runs[0]

    @property
    def run(self) -> Run:
        """The first run's specification; the arm's runs share all of it except seed and parent."""
        return self.first.run

    @property
    def start(self) -> str:
        """The arm or the folder that its runs start from; empty for random weights."""
        *_, folder, arm = self.first.family
        return str(folder or arm)

    @property
    def seeds(self) -> list[int]:
        return [run.run.seed for run in self.runs]

    @property
    def baseline(self) -> bool:
        return self.first.baseline

    @property
    def plain(self) -> bool:
        """Whether it is a baseline with neither further blocks nor a random prefix."""
        return self.baseline and not any(self.additions)

    @property
    def additions(self) -> tuple[int, int]:
        """What a baseline adds to its model: tokens of a random prefix, and further blocks."""
        return self.run.random_prefix, self.run.extra_blocks

    @property
    def samples_noise(self) -> bool:
        """Whether its probabilities are averaged over something random: z, or a prefix."""
        return not self.baseline or self.run.random_prefix > 0

    @property
    def preset_design(self) -> bool:
        """Whether it is a Free Transformer with the design of its preset."""
        return not self.baseline and not self.first.design_changes

    @property
    def kind(self) -> str:
        return kind_of(self.run)

    @property
    def warmup(self) -> str:
        """How many steps it took κ to rise from 0, in words; empty if it did not."""
        steps = 0 if self.baseline else self.run.kappa_warmup_steps
        return f"κ rose from 0 over {steps:,} steps" if steps else ""

    @property
    def title(self) -> str:
        """Name and κ, in words."""
        if self.baseline:
            prefix = self.run.random_prefix
            return f"{self.name}: {f'random prefix of {prefix}' if prefix else 'no latent'}"
        unit = "bit" if (self.run.kappa_bits or 0) <= 1 else "bits"
        return f"{self.name}: κ = {self.first.kappa} {unit} per token"

    @property
    def unit(self) -> str:
        return self.first.unit

    @property
    def parameters(self) -> int:
        return self.first.evaluation.parameters

    @property
    def trained_tokens(self) -> int:
        return self.first.evaluation.trained_tokens

    @property
    def collapsed(self) -> list[int]:
        """The seeds whose latent collapsed."""
        return [run.run.seed for run in self.runs if run.evaluation.collapsed]

    @property
    def collapse(self) -> str:
        """`collapsed` if all seeds did, else how many seeds did; empty if none."""
        if not self.collapsed or len(self.collapsed) == len(self.runs):
            return "collapsed" if self.collapsed else ""
        return f"{len(self.collapsed)} of {len(self.runs)} collapsed"

    def figures(self, unit: str | None = None) -> Figures:
        """Held-out figures, means over seeds; None where some seed has no such figure."""
        each = [run.figures(unit or self.unit) for run in self.runs]
        return Figures(
            **{
                field.name: self.if_all([getattr(figures, field.name) for figures in each])
                for field in fields(Figures)
            }
        )

    def if_all(self, estimates: list[Estimate | None]) -> OverSeeds | None:
        present = [estimate for estimate in estimates if estimate]
        return over_seeds(present) if len(present) == len(self.runs) else None

    def bound(self, unit: str | None = None) -> OverSeeds:
        """The figure to compare arms by, over seeds."""
        return over_seeds([run.bound(unit or self.unit) for run in self.runs])

    def bounds(self, unit: str | None = None) -> list[float]:
        """The bound of each seed."""
        return [run.bound(unit or self.unit).mean for run in self.runs]

    def looseness(self, unit: str | None = None) -> float:
        """How far the bound may lie above the NLL, mean over seeds: half the variance of its log
        estimate, doubled without convergence, where it says too little; or the distance down to
        another of its bounds, if that is more. 0 for an exact NLL.
        """
        return fmean(looseness(run.figures(unit or self.unit)) for run in self.runs)

    def mean_of(self, estimate: Callable[[RunResults], Estimate | None]) -> OverSeeds | None:
        """Mean over the seeds that have the estimate; None if none has."""
        estimates = [each for run in self.runs if (each := estimate(run))]
        return over_seeds(estimates) if estimates else None

    @cached_property
    def gap(self) -> OverSeeds | None:
        """Bound minus the exact entropy, nats per token, where the process is known."""
        return self.mean_of(lambda run: run.evaluation.gap_nats_per_token)

    @property
    def tokens_per_second(self) -> float:
        """Scoring speed, mean over seeds."""
        return fmean(run.evaluation.tokens_per_second for run in self.runs)

    @property
    def last_third(self) -> list[Estimate]:
        """Mean bound over the last third, for each seed with budgets; its error is unknown."""
        return [Estimate(mean, nan) for run in self.runs if (mean := last_third(run)) is not None]


def group_by_seed(runs: list[RunResults]) -> list[Arm]:
    """Arms, in order, of the given runs, which need not be all of the experiment."""
    by_arm = defaultdict(list)
    for run in runs:
        by_arm[run.arm].append(run)
    return [Arm(name, alike) for name, alike in by_arm.items()]


def grouped(arms: Iterable[Arm], key: Callable[[Arm], Any]) -> dict[Any, list[Arm]]:
    """Group arms by a key."""
    groups = defaultdict(list)
    for arm in arms:
        groups[key(arm)].append(arm)
    return dict(groups)


def by_data(arms: list[Arm]) -> dict[str, list[Arm]]:
    return grouped(arms, lambda arm: arm.run.data)


def families(arms: list[Arm]) -> list[list[Arm]]:
    """Groups of arms with the same data, model, token budget and parent, which may be compared."""
    return [*grouped(arms, lambda arm: arm.first.family).values()]


def baselines(family: list[Arm]) -> list[Arm]:
    """A family's baselines: the plain one first, those with a random prefix last, no two alike."""
    by_additions: dict[tuple[int, int], Arm] = {}
    for arm in family:
        if arm.baseline:
            by_additions.setdefault(arm.additions, arm)
    return [by_additions[each] for each in sorted(by_additions)]
