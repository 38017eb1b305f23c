"""Distances between continuations, and whether z explains them."""

from itertools import combinations, permutations

import pytest
import torch

from ftmodel.analysis.use_of_z import distances, mean_distance, steering_test


def test_the_distance_is_the_share_of_tokens_that_are_not_in_the_other():
    tokens = torch.tensor([[5, 5, 5, 5], [5, 5, 9, 5], [9, 5, 5, 5], [1, 2, 3, 4]])
    expected = [[0, 0.25, 0.25, 1], [0.25, 0, 0, 1], [0.25, 0, 0, 1], [1, 1, 1, 0]]
    assert distances(tokens).tolist() == expected


def test_means_are_over_pairs_of_different_continuations(rng):
    apart = torch.rand(2, 5, 5, generator=rng).double()
    apart = apart + apart.mT
    labels = torch.tensor([0, 0, 1, 1, 1])
    result = steering_test(apart, labels, rng, permutations=3)
    pairs = list(combinations(range(5), 2))
    for prompt in (0, 1):
        for same, means in ((True, result.within), (False, result.between)):
            values = [apart[prompt, i, j] for i, j in pairs if (labels[i] == labels[j]) == same]
            assert means[prompt].item() == pytest.approx(sum(values).item() / len(values))
    assert result.ratio == pytest.approx((result.between.sum() / result.within.sum()).item())
    everyone = mean_distance(apart, torch.ones(5, 5, dtype=torch.bool))
    expected = [sum(d[i, j] for i, j in pairs).item() / 10 for d in apart]
    assert everyone.tolist() == pytest.approx(expected)


def test_the_null_is_the_ratio_under_each_permutation_of_the_labels(rng):
    """Of two prompts, permuted each for itself: by enumeration. Labels may be large codes."""
    apart = torch.rand(2, 5, 5, generator=rng).double()
    apart = (apart + apart.mT) * (1 - torch.eye(5))
    labels = torch.tensor([2**40, 2**40, 7, 7, 1])
    orders = torch.tensor(list(permutations(range(5))))
    pairs = [d[orders[:, :, None], orders[:, None]] for d in apart]  # (120, 5, 5) each
    same = labels[:, None] == labels
    within, between = ([mean_distance(p, chosen) for p in pairs] for chosen in (same, ~same))
    ratios = (between[0][:, None] + between[1]) / (within[0][:, None] + within[1])
    expected = ratios.flatten().sort().values
    null = steering_test(apart, labels, rng).null
    for quantile in (0.1, 0.5, 0.9):
        drawn = null.quantile(quantile).item()
        assert (expected - drawn).abs().min() < 1e-12
        below, up_to = ((expected < drawn + e).double().mean() for e in (-1e-12, 1e-12))
        assert below - 0.02 < quantile < up_to + 0.02
