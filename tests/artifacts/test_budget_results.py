"""Results at the token budgets of a run."""

from types import SimpleNamespace

from pipelines.artifacts.result_files import BudgetResult, late_tokens
from pipelines.artifacts.results import BudgetFigures, Figures
from pipelines.config.derived import Budget


def test_a_budget_has_the_tokens_of_its_whole_batches():
    spec = SimpleNamespace(batch_tokens=520)
    found = BudgetResult.of(spec, Budget(listed=1100, steps=2, annealed=True))
    assert found == BudgetResult(tokens=1040, listed=1100, annealed=True)


def test_a_budget_at_two_thirds_is_in_the_last_third_and_one_before_it_is_not():
    budgets = [BudgetFigures(tokens, tokens, False, Figures()) for tokens in (3, 3999, 4000, 6000)]
    assert late_tokens([budgets, budgets]) == (4000, 6000)
