"""A line through a measurement of models of several sizes, and its prediction for a larger model.

Ordinary least squares of y on x = ln N (log-linear), or of ln y on ln N (a power law). A size is
one point, however many seeds it has: its seeds share its deviation from the line, and separate
points would count it several times. With n points, mean x̄, S = Σ (x_i − x̄)² and
s² = Σ (y_i − ŷ_i)² / (n − 2), another size at x lies with 95 % probability within

    ŷ(x) ± t √(s² (1 + 1/n + (x − x̄)² / S)),        t: Student's, n − 2 degrees of freedom,

if sizes scatter alike and independently around the line, and the trend continues (Montgomery, Peck
& Vining 2012, Introduction to Linear Regression Analysis, § 2.5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from scipy.stats import linregress

from ftmodel.analysis.differences import margin

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
