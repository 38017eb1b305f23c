"""How large a difference between two models must be for the rule to find it, and with how many
seeds a small one is found, or shown to be small.

The rule (differences.py) is applied to simulated bounds. A model's seeds scatter normally around
its mean, with a spread known from earlier runs; documents shift the difference by an error of their
own. A true difference δ only adds to the simulated one, so one simulation serves for every δ.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, isnan, nan, sqrt

import numpy as np

from ftmodel.analysis.differences import Difference, DocumentError, difference, pool_variances

POWER = 0.8  # the probability with which a difference is to be found
SIMULATED = 500  # experiments; the probability is then known to ± 0.02
MAX_SEEDS = 40


@dataclass(frozen=True)
class DocumentSpread:
    """What documents add to the error of a difference between two models, whatever the seeds."""

    n: int
    error: float  # standard error over documents, without the interaction with seeds
    interaction: float  # standard error over documents that one seed of one model adds

    def error_of(self, seeds: int) -> DocumentError:
        """The error of a difference between the means of ``seeds`` seeds each."""
        shared = self.interaction**2 * 2 / seeds
        return DocumentError(sqrt(self.error**2 + shared), self.n - 1, shared)


@dataclass(frozen=True)
class Power:
    """What the rule makes of two models, by simulation, with a true difference of 0."""

    simulated: Sequence[Difference]

    @property
    def detectable(self) -> float:
        """The difference that is found with probability `POWER`; NaN without an error."""
        needed = [each.threshold - each.mean for each in self.simulated]
        return nan if any(map(isnan, needed)) else float(np.quantile(needed, POWER))

    def equivalent(self, effect: float) -> float:
        """The probability that two equal models are called equivalent within ``effect``."""
        return float(np.mean([abs(d.mean) + d.one_sided < effect for d in self.simulated]))


@cache
def power(spreads: tuple[float, ...], seeds: int, documents: DocumentSpread | None) -> Power:
    """Simulate experiments with ``seeds`` ≥ 2 seeds of each model and these spreads over seeds
    (standard deviations): of the model, of its baseline, then of others that may be pooled.
    """
    draws = np.random.default_rng(0)
    error = documents.error_of(seeds) if documents else None
    pair = (draws.normal(size=(SIMULATED, seeds, 2)) * spreads[:2]).swapaxes(1, 2)
    # of the others only their variances matter: those of normal samples
    chi_square = draws.chisquare(seeds - 1, size=(SIMULATED, len(spreads) - 2))
    others = chi_square / (seeds - 1) * np.square(spreads[2:])
    variances = np.hstack([pair.var(2, ddof=1), others])
    pair[:, 0] += draws.normal(size=(SIMULATED, 1)) * (documents.error if documents else 0)
    freedoms = [seeds - 1] * len(spreads)
    return Power(
        [
            difference(mine, other, error, pool_variances(each, freedoms))
            for (mine, other), each in zip(pair.tolist(), variances.tolist(), strict=True)
        ]
    )


def detectable(
    spreads: Sequence[float], seeds: int, documents: DocumentSpread | None = None
) -> float:
    """The difference from its baseline that is found with probability `POWER`; arguments as for
    `power`. NaN with one seed each: another seed might reverse what is found.
    """
    return power((*spreads,), seeds, documents).detectable if seeds > 1 else nan


def seeds_to_detect(
    effect: float, spreads: Sequence[float], documents: DocumentSpread | None = None
) -> float:
    """The fewest seeds of each model that find a difference of ``effect`` with probability `POWER`;
    infinite beyond `MAX_SEEDS`. The rule never finds a difference below the spread of a model.
    """
    return fewest(lambda n: detectable(spreads, n, documents) <= effect)


def seeds_to_equate(
    effect: float, spreads: Sequence[float], documents: DocumentSpread | None = None
) -> float:
    """The fewest seeds with which equal models are called equivalent with probability `POWER`."""
    return fewest(lambda n: power((*spreads,), n, documents).equivalent(effect) >= POWER)


def fewest(enough: Callable[[int], bool]) -> float:
    """The smallest number of seeds, from 2, that is enough, if all larger ones are, too."""
    n = 2 + bisect_left(range(2, MAX_SEEDS + 1), True, key=enough)
    return n if n <= MAX_SEEDS else inf
