"""Permutation tests, by hand."""

import pytest
import torch

from ftmodel.analysis.statistics import Chance, adjusted, permutation_test


def test_a_permutation_that_reaches_the_statistic_counts_against_it():
    chance = permutation_test(torch.tensor([3.0, 1.0, 2.0, 3.0, 4.0]))
    assert chance == Chance(3, 2.5, pytest.approx(3.85), p_value=(1 + 2) / (1 + 4))


def test_p_values_are_adjusted_by_their_rank():
    """p · n / rank, and none above that of a larger p."""
    assert adjusted([0.01, 0.5, 0.04, 0.03]) == pytest.approx([0.04, 0.5, 0.16 / 3, 0.16 / 3])
    assert adjusted([]) == []
