"""The power of the rule: the difference between two models that given seeds detect, and the seeds
needed to detect a small one, or to show that it is small.

The rule (differences.py) is applied to simulated bounds. A model's seeds scatter normally around
its mean, with a spread known from earlier runs; documents shift the difference by an error of their
own. A true difference δ only adds to the simulated one, so one simulation serves for every δ.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan, sqrt

import numpy as np

from ftmodel.analysis.differences import DocumentError, difference, pool_variances

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
    """The rule's results on simulated experiments whose two models do not differ: (SIMULATED,)."""

    mean: np.ndarray
    threshold: np.ndarray
    one_sided: np.ndarray

    def detectable(self, effect: float = 0.0) -> float:
        """The difference that is reported as one with probability `POWER`. A difference may also be
        called equivalent within ``effect``, which does not report it.
        """
        needed = np.maximum(self.threshold, effect - self.one_sided) - self.mean
        return float(np.quantile(needed, POWER))

    def equivalent(self, effect: float) -> float:
        """The probability that the two models are called equivalent within ``effect``."""
        return float((abs(self.mean) + self.one_sided < effect).mean())


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
    found = [
        difference(mine, other, error, pool_variances(each, freedoms))
        for (mine, other), each in zip(pair.tolist(), variances.tolist(), strict=True)
    ]
    columns = (
        [getattr(each, name) for each in found] for name in ("mean", "threshold", "one_sided")
    )
    return Power(*map(np.array, columns))


def detectable(
    spreads: Sequence[float],
    seeds: int,
    documents: DocumentSpread | None = None,
    effect: float = 0.0,
) -> float:
    """The difference from its baseline that is reported with probability `POWER`; ``effect`` as in
    `Power.detectable`, the rest as for `power`. NaN with one seed each, whose verdict another seed
    might reverse.
    """
    return power((*spreads,), seeds, documents).detectable(effect) if seeds > 1 else nan


def seeds_to_detect(
    effect: float, spreads: Sequence[float], documents: DocumentSpread | None = None
) -> float:
    """The fewest seeds of each model that detect a difference of ``effect`` with probability
    `POWER`; infinite beyond `MAX_SEEDS`. No number of seeds detects a difference below a model's
    spread so often.
    """
    return fewest_seeds(lambda n: detectable(spreads, n, documents, effect) <= effect)


def seeds_to_equate(
    effect: float, spreads: Sequence[float], documents: DocumentSpread | None = None
) -> float:
    """The fewest seeds with which equal models are called equivalent with probability `POWER`."""
    return fewest_seeds(lambda n: power((*spreads,), n, documents).equivalent(effect) >= POWER)


def fewest_seeds(enough: Callable[[int], bool]) -> float:
    """The smallest sufficient number of seeds, at least 2; every larger one must suffice, too."""
    n = 2 + bisect_left(range(2, MAX_SEEDS + 1), True, key=enough)
    return n if n <= MAX_SEEDS else inf
