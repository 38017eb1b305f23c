"""Results of a run's model at one of its token budgets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.derived import Budget


@dataclass(frozen=True)
class BudgetResult:
    tokens: int  # trained on by then
    listed: int  # as configured
    annealed: bool

    @classmethod
    def of(cls, spec: RunSpec, budget: Budget, **results: Any) -> Self:
        tokens = budget.steps * spec.batch_tokens
        return cls(tokens=tokens, listed=budget.listed, annealed=budget.annealed, **results)


T = TypeVar("T", bound=BudgetResult)


def in_last_third(budgets: Sequence[T]) -> list[T]:
    """The budgets in the last third of training; ``budgets`` rise in tokens."""
    return [entry for entry in budgets if 3 * entry.tokens >= 2 * budgets[-1].tokens]


def late_tokens(of_seeds: Iterable[Sequence[BudgetResult]]) -> tuple[int, ...]:
    """Tokens at each budget in the last third; empty if the seeds differ in them. Only means over
    the same budgets are compared.
    """
    found = {tuple(entry.tokens for entry in in_last_third(budgets)) for budgets in of_seeds}
    return found.pop() if len(found) == 1 else ()
