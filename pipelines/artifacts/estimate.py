"""A figure with its standard error, as evaluation writes it, and what results of a budget have."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, ClassVar, Self, TypeVar

from torch import Tensor

from ftmodel.analysis.statistics import mean_and_error
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.derived import Budget


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out documents."""

    mean: float
    se: float  # standard error over documents; NaN for a single one
    # of a filtering bound: standard error over repeated filters; half the variance of its log
    # estimate, which while it is small is about how far the bound lies above the NLL
    monte_carlo: float | None = None
    half_variance: float | None = None
    converged: bool | None = None  # whether a calibration found enough particles; None: not asked
    spread: ClassVar[float] = nan  # over seeds: of a single run there is none

    @classmethod
    def over_documents(cls, totals: Tensor, sizes: Tensor | None = None) -> "Estimate":
        """Σ totals / Σ sizes over n documents, (n,) each."""
        found = mean_and_error(totals, sizes)
        return cls(found["mean"], found["se"])

    @classmethod
    def by_document(cls, totals: Tensor, document: Tensor, size: int = 1) -> "Estimate":
        """Σ totals / Σ sizes; ``document`` names that of each of totals (n,) of ``size``."""
        sums, counts = document_sums(totals, document)
        return cls.over_documents(sums, counts * size)

    @property
    def convergence(self) -> str:
        """What the number is followed by if the calibration did not find enough particles."""
        return " (not converged)" if self.converged is False else ""

    def __str__(self) -> str:
        error = "" if isnan(self.se) else f" ± {self.se:.4f}"
        return f"{self.mean:.4f}{error}".replace("-", "−") + self.convergence


def document_sums(values: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of values (n, …) by ``document`` (n,), (D, …), and how many values each has, (D,)."""
    _, index, counts = document.unique(return_inverse=True, return_counts=True)
    zeros = values.new_zeros(len(counts), *values.shape[1:])
    return zeros.index_add_(0, index, values), counts


@dataclass(frozen=True)
class BudgetResult:
    """Of a run's model at one of its token budgets."""

    tokens: int  # trained on by then
    listed: int  # as configured
    annealed: bool

    @classmethod
    def of(cls, spec: RunSpec, budget: Budget, **results: Any) -> Self:
        tokens = budget.steps * spec.batch_tokens
        return cls(tokens=tokens, listed=budget.listed, annealed=budget.annealed, **results)


Result = TypeVar("Result", bound=BudgetResult)


def in_last_third(budgets: Sequence[Result]) -> list[Result]:
    """The budgets in the last third of the training, of all its budgets as they rise."""
    return [entry for entry in budgets if 3 * entry.tokens >= 2 * budgets[-1].tokens]


def late_tokens(budgets: Sequence[BudgetResult]) -> tuple[int, ...]:
    """Tokens of each budget in the last third: only means over the same ones are compared."""
    return tuple(entry.tokens for entry in in_last_third(budgets))
