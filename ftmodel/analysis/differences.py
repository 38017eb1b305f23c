"""The rule by which a difference between models counts, by documents and seeds.

docs/measurement/differences.md derives the rule and gives its simulated false-alarm rates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import isnan, nan, sqrt
from operator import mul
from statistics import fmean, stdev, variance

import numpy as np
import torch
from scipy.special import stdtrit  # the quantile of Student's t
from torch import Tensor

from ftmodel.analysis.statistics import mean_and_error

LEVEL = 0.05  # of the rule for differences, two-sided
REFUSED = 0.2  # spreads over seeds are not pooled if equal ones are as unlike with less probability
DRAWS = 20_000  # of that test's simulated null distribution

Sample = list[float]  # a figure of every seed of a model


@dataclass(frozen=True)
class SeedError:
    """Standard error over seeds of a difference between two models' means; NaN and 0: not known."""

    error: float
    freedom: float


@dataclass(frozen=True)
class DocumentError:
    """Standard error over documents of a difference between two models' means over seeds."""

    error: float  # NaN: of a single document
    freedom: int
    interaction: float = 0.0  # its part, squared, that is in the error over seeds too; 0: not known


def document_error(
    scores: Tensor, other_scores: Tensor, sizes: Tensor | None = None
) -> DocumentError:
    """Of Σ scores / Σ sizes, means over seeds: scores of two models on the same documents, (seeds,
    documents) each; sizes as in `mean_and_error`.

    A seed may do well on some documents and badly on others. Such an interaction of seeds and
    documents varies from seed to seed and from document to document, so that it is in both errors.
    Its variance is that of each document's residuals over the seeds of a model, after each seed's
    own mean; it is taken as the same in both models.
    """
    n, seeds = scores.shape[1], (len(scores), len(other_scores))
    error = mean_and_error(scores.double().mean(0) - other_scores.double().mean(0), sizes)["se"]
    freedom = sum(seeds) - 2
    if n == 1 or not freedom:
        return DocumentError(error, n - 1)
    squares = sum(interaction_squares(each.double(), sizes) for each in (scores, other_scores))
    return DocumentError(error, n - 1, squares / freedom * sum(1 / number for number in seeds))


def interaction_squares(scores: Tensor, sizes: Tensor | None) -> float:
    """Squares over seeds of a model's residuals by document, in units of its squared error."""
    n = scores.shape[1]
    sizes = torch.ones(n).double() if sizes is None else sizes.double()
    residuals = scores - scores.sum(1, keepdim=True) / sizes.sum() * sizes  # (seeds, documents)
    squares = (residuals - residuals.mean(0)).square().sum()
    return (n / (n - 1) * squares / sizes.sum().square()).item()


@dataclass(frozen=True)
class Difference:
    """A figure of one model minus another's, means over the seeds of each."""

    mean: float
    documents: float | None  # standard error over documents; NaN: of one document; None: not stored
    own: SeedError  # by the seeds of these two models
    pooled: SeedError  # by the seeds of all models that may be pooled
    equality: float  # p-value of the test that these have the same spread; NaN: not to be tested
    threshold: float  # what the difference has to exceed to count; NaN: not known

    @property
    def is_pooled(self) -> bool:
        """Whether the pooled error decides."""
        return may_pool(self.equality)

    @property
    def seeds(self) -> float:
        """The standard error over seeds that decides; NaN: no seeds."""
        return (self.pooled if self.is_pooled else self.own).error

    @property
    def other_seeds(self) -> float:
        """The other of the two, which does not decide."""
        return (self.own if self.is_pooled else self.pooled).error

    @property
    def verdict(self) -> str:
        """`lower`, `higher`, `no difference`, or `not known`."""
        if self.mean > self.threshold:
            return "higher"
        if self.mean < -self.threshold:
            return "lower"
        return "not known" if isnan(self.threshold) else "no difference"


@dataclass(frozen=True)
class Pool:
    """The spread over seeds within several models, and whether it may be one and the same."""

    spread: float  # standard deviation; NaN: none of the models has a second seed
    freedom: int
    equality: float  # p-value of `equal_spreads`


def pool_seeds(samples: Iterable[Sample]) -> Pool:
    """Of a figure of every seed of each model; the models' means may differ."""
    repeated = [sample for sample in samples if len(sample) > 1]
    variances = [variance(sample) for sample in repeated]
    freedoms = [len(sample) - 1 for sample in repeated]
    if not repeated:
        return Pool(nan, 0, nan)
    squares = sum(map(mul, variances, freedoms))
    return Pool(sqrt(squares / sum(freedoms)), sum(freedoms), equal_spreads(variances, freedoms))


def may_pool(equality: float) -> bool:
    """Whether a p-value of `equal_spreads`, NaN included, leaves spreads to be pooled."""
    return not equality < REFUSED


def equal_spreads(variances: list[float], freedoms: list[int]) -> float:
    """The probability that the largest of several variances has as large a share of their sum as
    here, if they are estimates of the same one, from normal samples (Cochran 1941, Annals of
    Eugenics 11). NaN for a single one, or if all are 0.

    Levene's test would not do: in a sample of two, both values are equally far from its centre.
    """
    if len(variances) < 2 or not sum(variances):
        return nan
    null = largest_shares(tuple(sorted(freedoms)))
    as_large = DRAWS - np.searchsorted(null, max(variances) / sum(variances))
    return float((1 + as_large) / (1 + DRAWS))


@cache
def largest_shares(freedoms: tuple[int, ...]) -> np.ndarray:
    """Draws of the largest of several variances as a share of their sum, in ascending order, where
    the estimates have these degrees of freedom and the true variances are equal: (DRAWS,).
    """
    draws = np.random.default_rng(0).chisquare(freedoms, size=(DRAWS, len(freedoms)))
    variances = draws / np.array(freedoms)
    return np.sort(variances.max(1) / variances.sum(1))


def difference(
    seeds: Sample,
    other_seeds: Sample,
    documents: DocumentError | None = None,
    pool: Pool | None = None,
) -> Difference:
    """The rule for differences: a figure of every seed of a model minus that of another model.

    ``documents``: if None, seeds alone decide. ``pool``: of the same figure of all models measured
    in the same way, these two among them; if None, of these two.

    A difference between the means over seeds counts if it exceeds `threshold`, a t-test at 5 % over
    documents and seeds, and the spread of either model, the standard deviation over its seeds. The
    error over seeds is that of the pool unless the test of equal spreads refuses it.

    Seeds are not paired: runs of one seed read the same data in the same order, but no more than
    that.
    """
    pool = pool or pool_seeds((seeds, other_seeds))
    own, pooled = own_error(seeds, other_seeds), pooled_error(seeds, other_seeds, pool)
    deciding = pooled if may_pool(pool.equality) else own
    spreads = [stdev(sample) for sample in (seeds, other_seeds) if len(sample) > 1]
    return Difference(
        mean=fmean(seeds) - fmean(other_seeds),
        documents=documents.error if documents else None,
        own=own,
        pooled=pooled,
        equality=pool.equality,
        threshold=max([threshold(deciding, documents), *spreads]),  # NaN stays: it is the first
    )


def pooled_error(seeds: Sample, other_seeds: Sample, pool: Pool) -> SeedError:
    """s √(1/n + 1/m), where s is the spread of the pool, with its degrees of freedom: Student's
    test for two samples (1908, Biometrika 6), with more than two for s.
    """
    return SeedError(
        pool.spread * sqrt(1 / len(seeds) + 1 / len(other_seeds)),
        pool.freedom,
    )


def own_error(seeds: Sample, other_seeds: Sample) -> SeedError:
    """√(s₁²/n + s₂²/m), with Welch's degrees of freedom (1947, Biometrika 34). If a model has a
    single seed, the spread of the other is taken for both.
    """
    n, m = len(seeds), len(other_seeds)
    if min(n, m) == 1:
        return pooled_error(seeds, other_seeds, pool_seeds((seeds, other_seeds)))
    a, b = variance(seeds) / n, variance(other_seeds) / m
    squares = a**2 / (n - 1) + b**2 / (m - 1)
    return SeedError(sqrt(a + b), (a + b) ** 2 / squares if squares else n + m - 2)


def threshold(seeds: SeedError, documents: DocumentError | None) -> float:
    """What a difference has to exceed: t-tests at 5 % over seeds, over documents, and over both.

    The error over both is that of a mean over two crossed samples, error² = V_seeds + V_documents −
    V_interaction (two-way clustering: Cameron, Gelbach & Miller 2011, Journal of Business &
    Economic Statistics 29; Owen 2007, Annals of Applied Statistics 1), with the degrees of freedom
    of a sum of V_seeds and the rest by Satterthwaite (1946, Biometrics Bulletin 2). NaN if no error
    is known, or the one over documents is of a single document.
    """
    if documents is None:
        return margin(seeds.error, seeds.freedom)
    alone = margin(documents.error, documents.freedom)
    if isnan(seeds.error) or isnan(documents.error):
        return alone
    of_seeds, rest = seeds.error**2, max(0.0, documents.error**2 - documents.interaction)
    squares = of_seeds**2 / seeds.freedom + rest**2 / documents.freedom
    both = margin(sqrt(of_seeds + rest), (of_seeds + rest) ** 2 / squares) if squares else 0.0
    return max(alone, margin(seeds.error, seeds.freedom), both)


def margin(error: float, freedom: float) -> float:
    """t standard errors, t being the 97.5 % quantile of Student's t; NaN for an unknown error."""
    return nan if isnan(error) else float(stdtrit(freedom, 1 - LEVEL / 2)) * error
