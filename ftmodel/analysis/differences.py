"""The rule that decides whether a difference between models counts, or is too small to matter, by
documents and seeds, and the line through differences of models of several sizes.

docs/measurement/differences.md derives the rule and gives its simulated false-alarm rates.

The line is ordinary least squares of y on x = ln N (log-linear), or of ln y on ln N (a power law).
A size is one point, however many seeds it has: its seeds share its deviation from the line, and
separate points would count it several times. With n points, mean x̄, S = Σ (x_i − x̄)² and s² = Σ
(y_i − ŷ_i)² / (n − 2), another size at x lies with 95 % probability within

    ŷ(x) ± t √(s² (1 + 1/n + (x − x̄)² / S)),        t: Student's, n − 2 degrees of freedom,

if sizes scatter alike and independently around the line, and the trend continues (Montgomery, Peck
& Vining 2012, Introduction to Linear Regression Analysis, § 2.5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, inf, isnan, log, nan, sqrt
from operator import mul
from statistics import fmean, stdev, variance

import numpy as np
import torch
from scipy.special import stdtr, stdtrit  # the distribution of Student's t, and its quantile
from scipy.stats import binom, linregress
from torch import Tensor

from ftmodel.analysis.statistics import mean_and_error

LEVEL = 0.05  # the rule's significance level, two-sided
REFUSED = 0.2  # p-values of ``equal_spreads`` below this one keep spreads from being pooled
DRAWS = 20_000  # simulated, for that test's null distribution

Sample = list[float]  # one measurement for each seed of a model


@dataclass(frozen=True)
class SeedError:
    """Standard error over seeds of a difference between two models' means; NaN and 0 if unknown."""

    error: float
    freedom: float


@dataclass(frozen=True)
class DocumentError:
    """Standard error over documents of a difference between two models' means over seeds."""

    error: float  # NaN for a single document
    freedom: int
    interaction: float = 0.0  # the squared part that is in the error over seeds too; 0 if unknown
    exact: float = 0.0  # what a difference of rates must exceed beside: see `exact_margin`


def document_error(
    scores: Tensor, other_scores: Tensor, sizes: Tensor | None = None
) -> DocumentError:
    """Error over documents of the difference in Σ scores / Σ sizes, means over seeds, of two
    models. Scores (seeds, documents) are on the same documents; sizes are as in `mean_and_error`.

    A seed may do well on some documents and badly on others. This interaction varies from seed to
    seed and from document to document, so both errors contain it. Its variance comes from each
    document's residuals over the seeds of a model, after each seed's own mean is subtracted. It is
    assumed to be the same in both models.
    """
    n, seeds = scores.shape[1], (len(scores), len(other_scores))
    error = mean_and_error(scores.double().mean(0) - other_scores.double().mean(0), sizes)["se"]
    exact = 0.0 if sizes is not None else exact_margin(scores, other_scores)
    freedom = sum(seeds) - 2
    if n == 1 or not freedom:
        return DocumentError(error, n - 1, exact=exact)
    squares = sum(interaction_squares(each.double(), sizes) for each in (scores, other_scores))
    shared = squares / freedom * sum(1 / number for number in seeds)
    return DocumentError(error, n - 1, shared, exact)


def exact_margin(scores: Tensor, other_scores: Tensor) -> float:
    """What a difference between two rates, means of 0 and 1 over n documents, must exceed beside
    its t-tests, which are too sure of few documents; 0 for other scores.

    It is at least the `agreement_margin`. Where each has one seed, McNemar's exact test (1947,
    Psychometrika 12) must reject, at 5 %, that a document that one of them passes and the other
    fails falls to either with the same probability.
    """
    n, seeds = scores.shape[1], (len(scores), len(other_scores))
    if not all(((each == 0) | (each == 1)).all() for each in (scores, other_scores)):
        return 0.0
    unseen = agreement_margin(n)
    discordant = int((scores[0] != other_scores[0]).sum())
    if seeds != (1, 1) or not discordant:
        return unseen
    # a fair coin may give one model this many of the discordant documents, a lead of 2 · most −
    # discordant; leads differ by two, so the margin lies one above it, below the first that counts
    most = int(binom.isf(LEVEL / 2, discordant, 0.5))
    return max(unseen, (2 * most - discordant + 1) / n)


def agreement_margin(n: int) -> float:
    """The largest difference between two rates that agrees with no difference on any of n documents
    or clusters: 1 − 0.025^(1/n), at 97.5 % each way (Clopper & Pearson 1934, Biometrika 26).
    """
    return float(1 - (LEVEL / 2) ** (1 / n))


def interaction_squares(scores: Tensor, sizes: Tensor | None) -> float:
    """Sum over a model's seeds of squared residuals by document, in units of its squared error."""
    n = scores.shape[1]
    sizes = torch.ones(n).double() if sizes is None else sizes.double()
    residuals = scores - scores.sum(1, keepdim=True) / sizes.sum() * sizes  # (seeds, documents)
    squares = (residuals - residuals.mean(0)).square().sum()
    return (n / (n - 1) * squares / sizes.sum().square()).item()


@dataclass(frozen=True)
class Difference:
    """A measurement of one model minus another's, means over the seeds of each."""

    mean: float
    documents: float | None  # standard error over documents; NaN for one document; None: not stored
    own: SeedError  # by the seeds of these two models
    pooled: SeedError  # by the seeds of all models that may be pooled
    equality: float  # p-value of the test that these have the same spread; NaN: cannot be tested
    threshold: float  # the difference counts if it exceeds this; NaN if unknown
    margin: float  # half of the 95 % interval: the threshold without the spreads
    one_sided: float  # half of the 90 % interval, for two one-sided tests at 5 %
    p_value: float  # of the t-tests, without the spreads; 1 where an exact margin is not reached
    smallest_effect: float | None  # what matters; None: any difference does

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
        """The other standard error over seeds, which does not decide."""
        return (self.own if self.is_pooled else self.pooled).error

    @property
    def verdict(self) -> str:
        """`equivalent`, `lower`, `higher`, `not decided`, or `not known`.

        Equivalent: two one-sided tests show that the difference is smaller than the smallest effect
        (Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15), even if it is not 0.
        """
        if isnan(self.threshold):
            return "not known"
        effect = self.smallest_effect
        if effect is not None and abs(self.mean) + self.one_sided < effect:
            return "equivalent"
        if abs(self.mean) > self.threshold:
            return "higher" if self.mean > 0 else "lower"
        return "not decided"

    @property
    def furthest(self) -> float:
        """The end of the 95 % interval that is further from 0, as a distance."""
        return abs(self.mean) + self.margin


@dataclass(frozen=True)
class Pool:
    """The spread over seeds within several models, and whether they may share one spread."""

    spread: float  # standard deviation; NaN: none of the models has a second seed
    freedom: int
    equality: float  # p-value of `equal_spreads`


def pool_seeds(samples: Iterable[Sample]) -> Pool:
    """Pool the spread over seeds of one measurement; the models' means may differ."""
    repeated = [sample for sample in samples if len(sample) > 1]
    return pool_variances([*map(variance, repeated)], [len(sample) - 1 for sample in repeated])


def pool_variances(variances: list[float], freedoms: list[int]) -> Pool:
    """Pool sample variances, each with its degrees of freedom."""
    if not variances:
        return Pool(nan, 0, nan)
    squares = sum(map(mul, variances, freedoms))
    return Pool(sqrt(squares / sum(freedoms)), sum(freedoms), equal_spreads(variances, freedoms))


def may_pool(equality: float) -> bool:
    """Whether spreads may be pooled, by the p-value of `equal_spreads`; NaN allows it."""
    return not equality < REFUSED


def equal_spreads(variances: list[float], freedoms: list[int]) -> float:
    """p-value of the null that several variances are equal: the probability that the largest
    estimate takes at least this share of their sum, for normal samples (Cochran 1941, Annals of
    Eugenics 11). NaN for a single variance, or if all are 0.

    Levene's test would not do: in a sample of two, both values are equally far from its centre.
    """
    if len(variances) < 2 or not sum(variances):
        return nan
    null = largest_shares(tuple(sorted(freedoms)))
    as_large = DRAWS - np.searchsorted(null, max(variances) / sum(variances))
    return float((1 + as_large) / (1 + DRAWS))


@cache
def largest_shares(freedoms: tuple[int, ...]) -> np.ndarray:
    """Simulate the largest variance estimate's share of their sum, for these degrees of freedom and
    equal true variances: (DRAWS,), in ascending order.
    """
    draws = np.random.default_rng(0).chisquare(freedoms, size=(DRAWS, len(freedoms)))
    variances = draws / np.array(freedoms)
    return np.sort(variances.max(1) / variances.sum(1))


def difference(
    seeds: Sample,
    other_seeds: Sample,
    documents: DocumentError | None = None,
    pool: Pool | None = None,
    smallest_effect: float | None = None,
) -> Difference:
    """Apply the rule for differences to a measurement: one model's seeds minus another's.

    ``documents``: if None, seeds alone decide. ``pool``: the measurement's spread over all
    models measured in the same way, these two included; if None, its spread over these two.
    ``smallest_effect``: as in `Difference`.

    A difference between the means over seeds counts if it exceeds `threshold`, a t-test at 5 % over
    documents and seeds, and the spread of either model, the standard deviation over its seeds. The
    error over seeds is the pool's unless the test of equal spreads refuses it. It is equivalent to
    none if both one-sided t-tests at 5 %, with the same errors, keep it below the smallest effect.

    Seeds are not paired: runs of one seed read the same data in the same order, but share no more
    than that.
    """
    pool = pool or pool_seeds((seeds, other_seeds))
    own, pooled = own_error(seeds, other_seeds), pooled_error(seeds, other_seeds, pool)
    errors = deciding_errors(pooled if may_pool(pool.equality) else own, documents)
    spreads = [stdev(sample) for sample in (seeds, other_seeds) if len(sample) > 1]
    exact = documents.exact if documents else 0.0
    mean, half = fmean(seeds) - fmean(other_seeds), max(largest_margin(errors), exact)
    return Difference(
        mean=mean,
        documents=documents.error if documents else None,
        own=own,
        pooled=pooled,
        equality=pool.equality,
        threshold=max([half, *spreads]),  # NaN stays: it is the first
        margin=half,
        one_sided=max(largest_margin(errors, 2 * LEVEL), exact),
        p_value=max(p_value(mean, each) for each in errors) if abs(mean) >= exact else 1.0,
        smallest_effect=smallest_effect,
    )


def pooled_error(seeds: Sample, other_seeds: Sample, pool: Pool) -> SeedError:
    """s √(1/n + 1/m), with the pool's spread s and degrees of freedom: Student's test for two
    samples (1908, Biometrika 6), but with s from possibly more than two.
    """
    return SeedError(
        pool.spread * sqrt(1 / len(seeds) + 1 / len(other_seeds)),
        pool.freedom,
    )


def own_error(seeds: Sample, other_seeds: Sample) -> SeedError:
    """√(s₁²/n + s₂²/m), with Welch's degrees of freedom (1947, Biometrika 34). If a model has a
    single seed, the other model's spread is used for both.
    """
    n, m = len(seeds), len(other_seeds)
    if min(n, m) == 1:
        return pooled_error(seeds, other_seeds, pool_seeds((seeds, other_seeds)))
    a, b = variance(seeds) / n, variance(other_seeds) / m
    squares = a**2 / (n - 1) + b**2 / (m - 1)
    return SeedError(sqrt(a + b), (a + b) ** 2 / squares if squares else n + m - 2)


def deciding_errors(seeds: SeedError, documents: DocumentError | None) -> list[SeedError]:
    """The errors that a difference must exceed t times: over documents, over seeds, and over both.

    The error over both is for a mean over two crossed samples, error² = V_seeds + V_documents −
    V_interaction (two-way clustering: Cameron, Gelbach & Miller 2011, Journal of Business &
    Economic Statistics 29; Owen 2007, Annals of Applied Statistics 1). Its degrees of freedom are
    Satterthwaite's (1946, Biometrics Bulletin 2) for the sum of V_seeds and the rest. A single one
    of NaN if no error is known, or if there is a single document.
    """
    if documents is None:
        return [seeds]
    alone = SeedError(documents.error, documents.freedom)
    if isnan(seeds.error) or isnan(documents.error):
        return [alone]
    of_seeds, rest = seeds.error**2, max(0.0, documents.error**2 - documents.interaction)
    squares = of_seeds**2 / seeds.freedom + rest**2 / documents.freedom
    if not squares:
        return [alone, seeds]
    both = SeedError(sqrt(of_seeds + rest), (of_seeds + rest) ** 2 / squares)
    return [alone, seeds, both]


def largest_margin(errors: list[SeedError], level: float = LEVEL) -> float:
    """The largest `margin` of several errors; NaN if they are unknown."""
    return max(margin(each.error, each.freedom, level) for each in errors)


def margin(error: float, freedom: float, level: float = LEVEL) -> float:
    """t standard errors, t being the quantile of Student's t for a two-sided ``level``; NaN for an
    unknown error.
    """
    return nan if isnan(error) else float(stdtrit(freedom, 1 - level / 2)) * error


def p_value(mean: float, error: SeedError) -> float:
    """Two-sided p-value of the t-test of a difference; NaN for an unknown error."""
    if error.error == 0:
        return 0.0 if mean else 1.0
    return 2 * float(stdtr(error.freedom, -abs(mean) / error.error))


MIN_POINTS = 3  # a line fits two exactly


@dataclass(frozen=True)
class Interval:
    """A prediction with its 95 % prediction interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """A fitted line, in ln N and, for a power law, ln y."""

    level: float  # at the mean of ln N
    slope: float  # for each factor e in N
    centre: float  # mean of ln N
    squares: float  # Σ (ln N − centre)²
    scatter: float  # s
    points: int
    power: bool

    @property
    def per_tenfold(self) -> float:
        """How much y, or the ln y of a power law, grows as N grows tenfold."""
        return self.slope * log(10)

    def at(self, size: float) -> Interval:
        x = log(size) - self.centre
        error = self.scatter * sqrt(1 + 1 / self.points + x**2 / self.squares)
        mean, wide = self.level + self.slope * x, margin(error, self.points - 2)
        ends = mean, mean - wide, mean + wide
        return Interval(*(map(grown, ends) if self.power else ends))


def grown(exponent: float) -> float:
    """e^x, or infinity where that is beyond a float."""
    try:
        return exp(exponent)
    except OverflowError:
        return inf


def log_linear(sizes: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Fit y = a + b ln N; None for fewer than three sizes."""
    return fitted(sizes, values, power=False)


def power_law(sizes: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Fit y = a N^b; None for fewer than three sizes, or if some y is not positive."""
    if any(value <= 0 for value in values):
        return None
    return fitted(sizes, [log(value) for value in values], power=True)


def fitted(sizes: Sequence[float], values: Sequence[float], power: bool) -> Trend | None:
    if len(set(sizes)) < MIN_POINTS:
        return None
    x, y = np.log(np.asarray(sizes, dtype=float)), np.asarray(values, dtype=float)
    centre, level = float(x.mean()), float(y.mean())
    squares = float(((x - centre) ** 2).sum())
    slope = float(linregress(x, y).slope)
    residuals = y - level - slope * (x - centre)
    scatter = sqrt(float((residuals**2).sum()) / (len(x) - 2))
    return Trend(level, slope, centre, squares, scatter, len(x), power)
