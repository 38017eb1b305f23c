"""The coin against its definition: Z enumerated, flip by flip."""

from math import log, prod

import pytest
import torch

from ftmodel.synthetic.coin_flip import (
    EPSILON,
    FLIPS,
    ONE,
    SYMBOLS,
    exact_log_probability,
    label_posterior,
    predictive,
    sample_labelled,
)
from tests.support.mutants import rejects

GIVEN = {(1, 1): 0.8, (0, 1): 0.2, (1, 0): 0.2, (0, 0): 0.8}  # P(x | z), keyed (x, z)


def row(flips):
    return torch.tensor([SYMBOLS.index(c) for c in "^" + flips])[None]


def joint(flips):
    """P(x_1 … x_t, z) for z = 0 and 1 by its definition, equation 1."""
    return [prod(GIVEN[int(x), z] for x in flips) / 2 for z in (0, 1)]


def test_samples_follow_their_labels(rng):
    rows, z = sample_labelled(4000, rng)
    assert rows.shape == (4000, 65)
    assert set(rows[:, 0].tolist()) == {0} and set(rows[:, 1:].unique().tolist()) == {1, 2}
    assert abs(z.double().mean() - 0.5) < 4 * 0.5 / 4000**0.5
    for value, share in ((0, EPSILON), (1, 1 - EPSILON)):
        ones = (rows[z == value][:, 1:] == ONE).double()
        assert ones.mean().item() == pytest.approx(share, abs=4 * 0.4 / ones.numel() ** 0.5)
        assert abs(ones.mean(0) - share).max() < 5 * 0.4 / len(ones) ** 0.5  # at each place


@rejects("coin_flip.predictive: («→1 - »posteriors", "equation 2 with ε for 1 − ε")
@pytest.mark.parametrize(
    "flips", ["1" * 64, "0" * 64, "10" * 32, "1" * 40 + "0" * 24, "1101000111" * 7]
)
def test_probabilities_enumerate_z(flips):
    """Of the flips, of Z given all of them, and of each flip given those before."""
    flips = flips[:FLIPS]
    p, tokens = joint(flips), row(flips)
    assert exact_log_probability(tokens).item() == pytest.approx(log(sum(p)), rel=1e-9)
    assert label_posterior(tokens).item() == pytest.approx(p[1] / sum(p), rel=1e-9)
    expected = [sum(joint(flips[:t] + "1")) / sum(joint(flips[:t])) for t in range(FLIPS)]
    assert predictive(tokens)[0].tolist() == pytest.approx(expected, rel=1e-9)


def test_what_is_no_sequence_of_flips_has_no_probability():
    wrong = torch.cat([row("1" * 64), row("1" * 64)])
    wrong[0, 0], wrong[1, 5] = ONE, 0
    assert exact_log_probability(wrong).tolist() == [-torch.inf] * 2
