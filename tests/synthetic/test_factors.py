"""Products and factors against their definition: pairs enumerated in plain Python."""

from collections import Counter
from itertools import product

import pytest
import torch
from scipy.stats import chisquare

from ftmodel.synthetic import factors
from ftmodel.synthetic.factors import (
    PRIMES,
    ROW,
    SYMBOLS,
    as_sequences,
    exact_log_probability,
    sample_sequences,
)
from tests.support.mutants import rejects


def tokens(*texts):
    return torch.tensor([[SYMBOLS.index(c) for c in t] for t in texts])


@pytest.fixture
def tiny(monkeypatch):
    """Factors of one digit from 2, 3 and 7, one blank: "h21=3x7"."""
    sizes = {"BLANKS": 1, "DIGITS": 1, "PRIMES": torch.tensor([2, 3, 7])}
    for name, value in sizes.items():
        monkeypatch.setattr(factors, name, value)


def test_the_primes_are_those_of_three_digits():
    sieve = torch.tensor([n for n in range(100, 1000) if all(n % d for d in range(2, n))])
    assert len(sieve) == 143
    squares = exact_log_probability(as_sequences(sieve, sieve)).exp()
    assert squares.tolist() == pytest.approx([1 / 143**2] * 143, rel=1e-9)


@rejects("factors.sample_sequences: «sort(1).values.→»", "factors in the order of the draw")
def test_sampled_sequences_are_products_with_their_factors(rng):
    for row in sample_sequences(200, rng):
        line = factors.PROCESS.text(row)
        total, pair = line[8:].split("=")
        smaller, larger = map(int, pair.split("x"))
        assert len(line) == ROW and line[:8] == "hgfedcba" and len(total) == 6
        assert smaller * larger == int(total) and smaller <= larger
        assert {smaller, larger} <= set(PRIMES.tolist())


def test_log_probability_counts_the_draws_of_a_sequence(tiny):
    pairs = product((2, 3, 7), repeat=2)
    draws = Counter(f"h{a * b:02}={min(a, b)}x{max(a, b)}" for a, b in pairs)
    expected = [count / 9 for count in draws.values()]
    assert exact_log_probability(tokens(*draws)).exp().tolist() == pytest.approx(expected)


def test_probabilities_of_all_sequences_sum_to_one(tiny):
    """Every text of the tiny form over twelve symbols in place of the digits; then a wrong sign."""
    rows = torch.tensor(list(product(range(12), repeat=4)))
    signs = tokens("h=x").expand(len(rows), -1)
    order = [4, 0, 1, 5, 2, 6, 3]  # blank, product, '=', smaller, 'x', larger
    every = torch.cat((rows, signs), dim=1)[:, order]
    assert exact_log_probability(every).exp().sum().item() == pytest.approx(1, rel=1e-9)
    for place in (0, 3, 5):
        other = every.clone()
        other[:, place] = 1
        assert exact_log_probability(other).exp().sum() == 0


def test_samples_are_as_frequent_as_probable(tiny, rng):
    """By χ² over the 6 sequences of the tiny form."""
    n = 4500
    counts = Counter(map(tuple, sample_sequences(n, rng).tolist()))
    expected = n * exact_log_probability(torch.tensor(list(counts))).exp()
    assert len(counts) == 6 and expected.sum().item() == pytest.approx(n)
    assert chisquare([*counts.values()], expected).pvalue > 0.001


@pytest.mark.parametrize(
    "wrong",
    [
        *("hgfedcba010302=101x102", "hgfedcba001111=011x101", "hgfedcba010403=103x101"),
        *("hgfedcb0010403=101x103", "0gfedcba010403=101x103", "hgfedcba010403=101=103"),
    ],
)
def test_impossible_sequences_have_no_probability(wrong):
    assert exact_log_probability(tokens(wrong)).item() == -torch.inf
