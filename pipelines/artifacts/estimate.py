"""A figure with its standard error, as evaluation writes it."""

from dataclasses import dataclass
from math import isnan, nan
from typing import ClassVar

from torch import Tensor

from ftmodel.analysis.statistics import mean_and_error


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out documents."""

    mean: float
    se: float  # standard error over documents; NaN for a single one
    # for a filtering bound: standard error over repeated filters, and half the variance of its log
    # estimate. While small, that is about how far the bound lies above the NLL
    monte_carlo: float | None = None
    half_variance: float | None = None
    converged: bool | None = None  # whether a calibration found enough particles; None: not asked
    spread: ClassVar[float] = nan  # over seeds; a single run has none

    @classmethod
    def over_documents(cls, totals: Tensor, sizes: Tensor | None = None) -> "Estimate":
        """Σ totals / Σ sizes over n documents, (n,) each."""
        found = mean_and_error(totals, sizes)
        return cls(found["mean"], found["se"])

    @classmethod
    def by_document(cls, totals: Tensor, document: Tensor, size: int = 1) -> "Estimate":
        """Σ totals / Σ sizes over documents: totals (n,) of ``size`` each, by ``document`` (n,)."""
        sums, counts = document_sums(totals, document)
        return cls.over_documents(sums, counts * size)

    @property
    def convergence(self) -> str:
        """The suffix for a number whose calibration did not find enough particles, else ""."""
        return " (not converged)" if self.converged is False else ""

    def __str__(self) -> str:
        error = "" if isnan(self.se) else f" ± {self.se:.4f}"
        return f"{self.mean:.4f}{error}".replace("-", "−") + self.convergence


def document_sums(values: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
    """Sum values (n, …) by ``document`` (n,): sums (D, …), and how many values each has (D,)."""
    _, index, counts = document.unique(return_inverse=True, return_counts=True)
    zeros = values.new_zeros(len(counts), *values.shape[1:])
    return zeros.index_add_(0, index, values), counts
