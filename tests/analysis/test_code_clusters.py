"""Agreement of the bits of texts, by pairs counted one by one, and its permutation test."""

from itertools import permutations

import pytest
import torch

from ftmodel.analysis.statistics import permutation_test
from ftmodel.analysis.use_of_z import (
    agreement,
    excess_agreement,
    mean_over_pairs,
    sums_by_document,
    with_permutations,
)

DOCUMENT = torch.tensor([0, 0, 1, 2, 2, 2])


def test_agreement_is_the_share_of_bits_that_two_draws_have_in_common(rng):
    q = torch.rand(6, 4, generator=rng).double()
    draws = (torch.rand(2, 40_000, 6, 4, generator=rng) < q).double()
    counted = torch.stack(
        [(draws[0] == draws[1].roll(-k, 1)).double().mean((0, 2)) for k in range(6)]
    )
    expected = torch.stack([agreement(q)[range(6), torch.arange(6).roll(-k)] for k in range(6)])
    torch.testing.assert_close(counted, expected, atol=0.01, rtol=0)


def test_pairs_are_counted_with_others_of_the_same_document_or_of_another(rng):
    agree = agreement(torch.rand(6, 4, generator=rng).double())
    pairs = [(i, j) for i, j in permutations(range(6), 2)]
    means = []
    for same in (True, False):
        sums, counts = sums_by_document(agree, DOCUMENT, same)
        chosen = [(i, j) for i, j in pairs if (DOCUMENT[i] == DOCUMENT[j]).item() == same]
        for d in range(3):
            of_d = [agree[i, j] for i, j in chosen if DOCUMENT[i] == d]
            assert counts[d] == len(of_d)
            assert sums[d].item() == pytest.approx(float(sum(of_d)))
        means.append(torch.stack([agree[i, j] for i, j in chosen]).mean())
    torch.testing.assert_close(excess_agreement(agree, DOCUMENT), means[0] - means[1])


@pytest.mark.parametrize("same", [True, False])
def test_the_error_is_that_of_leaving_each_document_out(rng, same):
    document = torch.tensor([0, 0, 1, 1, 1, 2, 2, 3])
    agree = agreement(torch.rand(8, 4, generator=rng).double())

    def mean(chosen):
        pairs = [(i, j) for i, j in permutations(chosen, 2)
                 if (document[i] == document[j]).item() == same]  # fmt: skip
        return sum(agree[i, j].item() for i, j in pairs) / len(pairs)

    kept = range(3) if same else range(4)  # the last has no pair of its own
    left = [mean([i for i in range(8) if document[i] != d]) for d in kept]
    centre = sum(left) / len(left)
    error = ((len(left) - 1) / len(left) * sum((v - centre) ** 2 for v in left)) ** 0.5
    assert mean_over_pairs(agree, document, same) == pytest.approx((mean(range(8)), error))


@pytest.mark.parametrize("alike", [True, False])
def test_documents_with_z_of_their_own_are_told_apart_and_others_are_not(rng, alike):
    document = torch.arange(12).repeat_interleave(4)
    q = torch.rand(12, 6, generator=rng).double()[document]
    if not alike:
        q = q[torch.randperm(48, generator=rng)]
    values = with_permutations(agreement(q), document, rng, permutations=200)
    assert len(values) == 201
    chance = permutation_test(values)
    assert (chance.p_value < 0.01) if alike else (chance.p_value > 0.01)
