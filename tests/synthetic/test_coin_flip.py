"""The coin against its definition: Z enumerated, flip by flip."""

from itertools import product
from math import log, prod

import pytest
import torch

from ftmodel.synthetic.coin_flip import (
    EPSILON,
    FLIPS,
    ONE,
    ROW,
    SYMBOLS,
    exact_log_probability,
    label_posterior,
    predictive,
    probability_of_one,
    sample_labelled,
)
from tests.support.mutants import rejects

GIVEN = {(1, 1): 0.8, (0, 1): 0.2, (1, 0): 0.2, (0, 0): 0.8}  # P(x | z), keyed (x, z)


def row(flips):
    return torch.tensor([SYMBOLS.index(c) for c in "^" + flips])[None]


def joint(flips):
    """P(x_1 … x_t) by its definition, equation 1."""
    return sum(prod(GIVEN[int(x), z] for x in flips) / 2 for z in (0, 1))


@rejects(
    "synthetic/coin_flip.py",
    "(1 - EPSILON) * z + EPSILON * (1 - z)",
    "EPSILON * z + (1 - EPSILON) * (1 - z)",
    "the coin's sides exchanged",
)
def test_a_flip_mostly_shows_its_hidden_bit():
    assert probability_of_one(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([0.2, 0.8])


def test_samples_follow_their_labels(rng):
    rows, z = sample_labelled(4000, rng)
    assert rows.shape == (4000, ROW)
    assert set(rows[:, 0].tolist()) == {0} and set(rows[:, 1:].unique().tolist()) == {1, 2}
    assert abs(z.double().mean() - 0.5) < 4 * 0.5 / 4000**0.5
    for value, share in ((0, EPSILON), (1, 1 - EPSILON)):
        ones = (rows[z == value][:, 1:] == ONE).double()
        assert ones.mean().item() == pytest.approx(share, abs=4 * 0.4 / ones.numel() ** 0.5)
        assert abs(ones.mean(0) - share).max() < 5 * 0.4 / len(ones) ** 0.5  # at each place


@pytest.mark.parametrize("flips", ["1" * 64, "0" * 64, "10" * 32, "1" * 40 + "0" * 24])
def test_log_probability_enumerates_z(flips):
    assert exact_log_probability(row(flips)).item() == pytest.approx(log(joint(flips)), rel=1e-9)


def test_probabilities_of_all_short_sequences_sum_to_one():
    rows = torch.cat([row("".join(x)) for x in product("01", repeat=10)])
    assert exact_log_probability(rows).exp().sum().item() == pytest.approx(1)


def test_what_is_no_sequence_of_flips_has_no_probability():
    wrong = torch.cat([row("1" * 64), row("1" * 64)])
    wrong[0, 0], wrong[1, 5] = ONE, 0
    assert exact_log_probability(wrong).tolist() == [-torch.inf] * 2


@rejects(
    "synthetic/coin_flip.py",
    "return probability_of_one(posteriors(sequences)[:, :-1])",
    "return probability_of_one(1 - posteriors(sequences)[:, :-1])",
    "equation 2 with ε for 1 − ε",
)
@pytest.mark.parametrize("flips", ["1101000111", "0000000000", "1111111111"])
def test_predictive_is_the_ratio_of_two_probabilities(flips):
    flips = (flips * 7)[:FLIPS]
    expected = [joint(flips[:t] + "1") / joint(flips[:t]) for t in range(FLIPS)]
    assert predictive(row(flips))[0].tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("flips", ["10" * 32, "110" * 21 + "1", "1" * 30 + "0" * 34])
def test_posterior_of_the_side_is_bayes_rule(flips):
    given = [prod(GIVEN[int(x), z] for x in flips) for z in (0, 1)]
    posterior = label_posterior(row(flips)).item()
    assert posterior == pytest.approx(given[1] / sum(given), rel=1e-9)


def test_predictive_probabilities_multiply_to_the_probability(rng):
    rows, _ = sample_labelled(50, rng)
    p = predictive(rows)
    log_p = torch.where(rows[:, 1:] == ONE, p, 1 - p).log().sum(1)
    torch.testing.assert_close(log_p, exact_log_probability(rows))


def test_the_first_flip_is_even_and_the_last_nearly_known(rng):
    rows, z = sample_labelled(200, rng)
    p = predictive(rows)
    assert set(p[:, 0].tolist()) == {0.5}
    torch.testing.assert_close(p[:, -1], probability_of_one(z.double()), atol=0.01, rtol=0)
