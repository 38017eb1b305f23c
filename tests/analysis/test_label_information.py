"""Information of z about a label: closed forms, planted and absent dependence, chance."""

from itertools import product
from math import log2

import pytest
import torch

from ftmodel.analysis.information import (
    bits_of_sequences,
    label_information,
    mutual_information,
    naive_bayes,
    observation_information,
)
from tests.support.mutants import rejects

ONE_IN_FIVE = -0.8 * log2(0.8) - 0.2 * log2(0.2)  # entropy of a choice of 1 in 5, bits


@pytest.mark.parametrize(
    ("counts", "expected"),  # of (bit, label) = 00, 01, 10, 11
    [
        ((2, 0, 0, 2), 1.0),
        ((1, 1, 1, 1), 0.0),
        ((0, 0, 2, 2), 0.0),  # a bit that is always 1
        ((4, 1, 1, 4), 1 - ONE_IN_FIVE),  # a channel that errs one in five
        ((3, 1, 0, 4), 1 - 5 / 8 * ONE_IN_FIVE),  # that errs for one label only
    ],
)
def test_information_of_two_bits_in_closed_form(counts, expected):
    pairs = [divmod(i, 2) for i, count in enumerate(counts) for _ in range(count)]
    bit, label = torch.tensor(pairs).T[..., None]
    assert mutual_information(bit, label).item() == pytest.approx(expected, abs=1e-9)


def test_information_of_independent_bits_is_not_negative():
    """Rounding could make it so."""
    for ones, labels in product(range(1, 8), repeat=2):
        bit, label = (torch.arange(9) < ones)[:, None], (torch.arange(9) < labels)[:, None]
        found = mutual_information(bit.repeat_interleave(9, 0), label.repeat(9, 1)).item()
        assert 0 <= found < 1e-12


def test_a_sequence_has_the_bits_that_it_shows_more_often_than_the_mean():
    bits = torch.zeros(5, 4, 2, dtype=torch.long)
    for row, ones in enumerate((0, 1, 2, 3, 4)):
        bits[row, :ones, 0] = 1
    assert bits_of_sequences(bits).tolist() == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 0]]


@rejects("information.bits_of_sequences: «mean(0)→median(0).values»", "a split at the median")
@pytest.mark.parametrize("ones", [100, 400, 600, 900])
@pytest.mark.parametrize("polarity", [-1, 1])
def test_a_bit_that_is_the_label_tells_all_of_it(ones, polarity, rng):
    """Whichever label is the more frequent, and whichever way round the bit has it."""
    labels = (torch.randperm(1000, generator=rng) < ones).long()
    bits = torch.randint(2, (1000, 8, 3), generator=rng)
    bits[..., 1] = (labels if polarity > 0 else 1 - labels)[:, None]
    information = label_information(bits, labels, rng, 100)
    all_of_it = -sum(share * log2(share) for share in (ones / 1000, 1 - ones / 1000))
    assert information.per_bit[1] == information.best.value == pytest.approx(all_of_it)
    assert information.best.p_value == information.whole.p_value == pytest.approx(1 / 101)


@pytest.mark.parametrize(
    ("posterior", "bits"),
    [([0.5, 0.5], 0), ([1.0, 0.0], 1), ([0.8, 0.2], 1 - ONE_IN_FIVE), ([0.5, 1.0], 0.5)],
)
def test_information_of_a_text_is_one_minus_the_entropy_of_its_posterior(posterior, bits):
    assert observation_information(torch.tensor(posterior).double()) == pytest.approx(bits)


def test_information_whose_sign_changes_between_tokens_is_found_in_the_whole(rng):
    """No bit leans to a label on the average over tokens."""
    labels = torch.randint(2, (1000,), generator=rng)
    signs = torch.tensor([1, -1]).repeat(16)
    p = 0.5 + 0.2 * signs[None, :, None] * (2 * labels[:, None, None] - 1)
    bits = (torch.rand(1000, 32, 4, generator=rng) < p).long()
    information = label_information(bits, labels, rng, 200)
    assert information.best.value < 0.05
    assert information.best.null_mean < information.best.null_95 < 0.02
    assert information.whole.value > 0.8 and information.whole.p_value < 0.01


@rejects(
    "information.label_information: «.max(0).values→[single[:, 0].argmax()]»",
    "the best bit compared with one bit by chance",
)
def test_without_a_relation_p_values_are_even(rng):
    """The best of 16 bits is compared with the best of 16: to have looked for it is no reward."""
    tests = []
    for _ in range(200):
        bits = torch.randint(2, (60, 4, 16), generator=rng)
        labels = torch.randint(2, (60,), generator=rng)
        tests.append(label_information(bits, labels, rng, 60))
    for kind in ("best", "whole"):
        p = torch.tensor([getattr(result, kind).p_value for result in tests])
        assert 0.4 < p.mean() < 0.62, kind
        assert (p <= 0.05).double().mean() < 0.11, kind  # 4 standard errors


def test_features_that_tell_nothing_leave_the_commoner_label():
    labels = torch.tensor([1, 1, 0] * 10)[:, None]
    assert naive_bayes(torch.zeros(30, 2), labels).eq(1).all()
    assert naive_bayes(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])[:, None]).eq(0).all()  # a tie


def test_predictions_are_smoothed_by_laplaces_rule():
    """Two features, set in both sequences of label 0 and in two of three of label 1: 2 · (3/4)² for
    label 0 against 3 · (3/5)². Each sequence is in either half.
    """
    features = torch.tensor([1, 1, 1, 1, 0]).repeat_interleave(2)[:, None].expand(-1, 2)
    labels = torch.tensor([0, 0, 1, 1, 1]).repeat_interleave(2)[:, None]
    assert naive_bayes(features, labels).flatten().tolist() == [0] * 8 + [1] * 2


@rejects("information.naive_bayes: «!= half→>= 0»", "labels predicted from themselves")
def test_a_prediction_does_not_use_its_own_label(rng):
    """Features that identify a sequence, and random labels: half of the predictions are right."""
    labels = torch.randint(2, (400, 1), generator=rng)
    features = torch.randint(2, (400, 3000), generator=rng)
    right = (naive_bayes(features, labels) == labels).double().mean()
    assert abs(right - 0.5) < 4 * 0.5 / 400**0.5
