"""pass@k against counting over all sets of answers."""

from itertools import combinations
from math import prod
from statistics import fmean

import pytest

from ftmodel.analysis.statistics import pass_at_k
from tests.support.mutants import rejects


@rejects(
    "statistics.pass_at_k: «comb(samples - c, k) / sets→(1 - c / samples) ** k»",
    "pass@k by the share of right answers, which is biased",
)
@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 8) for k in range(1, n + 1)])
def test_it_is_the_share_of_sets_with_a_right_answer(n, k):
    estimates = pass_at_k(n, range(n + 1), k)
    assert estimates.shape == (n + 1,)
    for c, estimate in enumerate(estimates.tolist()):
        answers = [True] * c + [False] * (n - c)
        assert estimate == pytest.approx(fmean(any(chosen) for chosen in combinations(answers, k)))


def test_many_answers_lose_no_precision():
    """Against the product of Chen et al., whose code is 1 − Π (1 − k / i), i = n − c + 1 … n."""
    n, k = 1000, 100
    for c in (1, 7, 400):
        none_right = prod(1 - k / i for i in range(n - c + 1, n + 1))
        assert pass_at_k(n, [c], k).item() == pytest.approx(1 - none_right, rel=1e-9)
