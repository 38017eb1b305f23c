"""Information of bits about tokens: planted codes have that of their function, others none."""

from math import isnan, log2
from statistics import pvariance

import pytest
import torch

from ftmodel.analysis.information import (
    Encoded,
    bit_information,
    frequent,
    information,
    most_certain,
    soft_counts,
    z_of_others,
)
from tests.support.mutants import rejects

CERTAIN = 30.0  # a logit


def entropy(p):
    return -p * log2(p) - (1 - p) * log2(1 - p) if 0 < p < 1 else 0.0


def encoded(tokens, o, documents=None):
    """Chunks of tokens (C, T + 1) with logits of bits (C, T, H), each a document of its own."""
    count, length = len(tokens), tokens.shape[1] - 1
    chunk = torch.arange(count).repeat_interleave(length)
    return Encoded(
        o=o.flatten(0, 1),
        kl=torch.zeros_like(o.flatten(0, 1)),
        tokens=tokens.flatten(),
        chunk=chunk,
        document=chunk if documents is None else documents.repeat_interleave(length),
    )


def planted(function, lag, rng, chunks=200, length=40):
    """Uniform tokens 0 … 7, and a bit that is [function(the token ``lag`` on)]; a fair one, too."""
    tokens = torch.randint(8, (chunks, length + 1 + lag), generator=rng)
    o = torch.zeros(chunks, length, 2)
    o[..., 0] = CERTAIN * (2.0 * function(tokens[:, lag : lag + length]) - 1)
    return encoded(tokens[:, : length + 1], o)


@pytest.mark.parametrize("threshold", [1, 4, 6])
@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_planted_code_has_the_information_of_its_function(rng, lag, threshold):
    """A bit that is [y < a] for the token y, uniform over 8, tells H(a / 8), at that lag alone."""
    sample = planted(lambda y: y < threshold, lag, rng)
    for other in (0, 1, 2, 3):
        total, bits = bit_information(sample, other, rng)
        expected = entropy(threshold / 8) if other == lag else 0.0
        assert bits[0].bits == pytest.approx(expected, abs=4 * bits[0].se + bits[0].null_mean)
        assert bits[1].bits == pytest.approx(0, abs=1e-12)
        assert total.bits == pytest.approx(bits[0].bits + bits[1].bits)
        assert bits[0].se < 0.02 and bits[0].null_mean < 0.002


def test_uncertain_bits_count_with_their_probabilities():
    """Even tokens set the bit with 0.9 and odd ones with 0.2: the information of that channel."""
    kind = torch.arange(8).repeat(10)
    q = torch.where(kind % 2 == 0, 0.9, 0.2 + 0 * kind.double())[:, None]
    counts = soft_counts(q, kind, 8)
    expected = entropy(0.55) - (entropy(0.9) + entropy(0.2)) / 2
    assert information(counts).item() == pytest.approx(expected, rel=1e-9)


def test_information_of_nothing_is_zero_and_none_is_negative(rng):
    for n, ones in ((0, 0), (1, 1), (2, 2 + 1e-15)):  # rounding may leave a bit above its count
        counts = torch.tensor([[n, ones], [0, 0]], dtype=torch.float64)
        assert information(counts).tolist() == [0]
    q = torch.rand(1, 500, generator=rng).double().expand(60, -1)
    unrelated = information(soft_counts(q, torch.arange(60) % 7, 7))
    assert (unrelated >= 0).all() and (unrelated < 1e-12).all()


def clustered(rng, chunks=24, length=30):
    """Documents with a bias towards some tokens, and, unrelated, bits drawn once a document."""
    weights = torch.rand(chunks, 8, generator=rng) ** 4
    tokens = torch.multinomial(weights, length + 1, replacement=True, generator=rng)
    o = CERTAIN * torch.randn(chunks, 1, 3, generator=rng).sign().expand(-1, length, -1)
    return encoded(tokens, o)


@rejects(
    "information.bit_information: «z_of_others(document,→torch.randperm(len(q), generator=»",
    "permuted z that lose what a document's z have in common",
)
def test_a_code_of_no_relation_has_no_excess_however_documents_cluster():
    """In the mean over samples; permuting single positions would leave 0.2 bits of three bits."""
    totals = []
    for seed in range(60):
        rng = torch.Generator().manual_seed(seed)
        totals.append(bit_information(clustered(rng), 1, rng)[0])
    bits = torch.tensor([total.bits for total in totals])
    assert bits.mean().item() == pytest.approx(0, abs=4 * bits.std().item() / 60**0.5)
    assert torch.tensor([total.null_mean for total in totals]).mean() > 0.1
    inside = [abs(total.bits) < 2 * total.se for total in totals]
    assert sum(inside) / 60 > 0.8


@pytest.mark.parametrize(("groups", "group_of"), [(32, [0, 1, 2, 3, 4]), (3, [0, 0, 1, 1, 2])])
def test_its_error_is_of_leaving_out_each_group_of_documents_and_of_a_null_of_few_permutations(
    rng, monkeypatch, groups, group_of
):
    monkeypatch.setattr("ftmodel.analysis.information.GROUPS", groups)
    tokens = torch.randint(3, (5, 9), generator=rng)
    sample = encoded(tokens, torch.randn(5, 8, 1, generator=rng))
    q, kind = sample.o.double().sigmoid(), tokens[:, 1:].flatten()
    kept = [torch.tensor(group_of)[sample.document] != g for g in sorted({*group_of})]
    left_out = [information(soft_counts(q[rest], kind[rest], 3)).item() for rest in kept]
    total, _ = bit_information(sample, 1, rng, permutations=3)
    of_groups = (len(kept) - 1) * pvariance(left_out)
    assert total.se**2 == pytest.approx(of_groups + total.null_sd**2 / 3)


def test_a_single_document_has_no_error_and_idle_bits_no_information(rng):
    tokens = torch.randint(8, (3, 11), generator=rng)
    sample = encoded(tokens, torch.zeros(3, 10, 2), documents=torch.zeros(3, dtype=torch.long))
    total, bits = bit_information(sample, 1, rng)
    assert (total.bits, total.null_mean, total.null_sd) == (0, 0, 0) and isnan(total.se)
    assert len(bits) == 2


@rejects(
    "Encoded.after: «inside[inside.clone()] = of_token[place[inside]] == "
    "self.chunk[inside]→del of_token»",
    "tokens of the next chunk taken for what follows",
)
def test_a_token_further_on_lies_in_the_same_chunk(rng):
    """Chunks of 2, 4 and 1 positions; a token is written as 10 × chunk + index."""
    lengths = [2, 4, 1]
    tokens = torch.tensor([10 * c + i for c, n in enumerate(lengths) for i in range(n + 1)])
    chunk = torch.tensor([c for c, n in enumerate(lengths) for _ in range(n)])
    sample = Encoded(torch.zeros(7, 1), torch.zeros(7, 1), tokens, chunk, chunk)
    own = [10 * c + i for c, n in enumerate(lengths) for i in range(n)]
    for lag in range(6):
        here, there = sample.after(lag)
        expected = [(i, y + lag) for i, y in enumerate(own) if y % 10 + lag <= lengths[y // 10]]
        assert list(zip(here.tolist(), there.tolist(), strict=True)) == expected
    assert bit_information(sample, 5, rng) is None


@pytest.mark.parametrize("sizes", [[5, 5, 5], [1, 7, 2, 4], [3, 3]])
def test_every_document_has_the_z_of_one_other_at_the_same_places(rng, sizes):
    document = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    place = torch.tensor([i for n in sizes for i in range(n)])
    donors = set()
    for _ in range(100):
        index = z_of_others(document, rng)
        taken = list(dict.fromkeys(zip(document.tolist(), document[index].tolist(), strict=True)))
        assert [own for own, _ in taken] == list(range(len(sizes)))
        assert all(own != other for own, other in taken)
        assert sorted(other for _, other in taken) == list(range(len(sizes)))
        lengths = torch.tensor(sizes)[document[index]]
        assert torch.equal(place[index], place % lengths)
        donors |= set(taken)
    assert len(donors) == len(sizes) * (len(sizes) - 1)
    for n in (1, 2, 5):  # a single document is rotated
        alone = torch.zeros(n, dtype=torch.long)
        drawn = {tuple(z_of_others(alone, rng).tolist()) for _ in range(100)}
        assert drawn == {tuple(torch.arange(n).roll(by).tolist()) for by in range(1, max(2, n))}


def test_rare_tokens_count_as_one():
    tokens = torch.tensor([7, 7, 7, 2, 2, 2, 2, 5, 9])
    assert frequent(tokens, 2).tolist() == [1, 1, 1, 0, 0, 0, 0, 2, 2]
    assert frequent(tokens, 8).unique().tolist() == [0, 1, 2, 3]
    assert frequent(torch.arange(1000), 8).tolist() == [*range(8), *[8] * 992]  # equally rare


def test_the_most_certain_positions_are_one_of_each_document_and_the_first_of_equals():
    values, document = torch.zeros(1000), torch.arange(1000) // 4
    values[9:11] = torch.tensor([2.0, 3.0])
    assert most_certain(values, document, 3) == [10, 0, 4]
    assert most_certain(values[:6], document[:6], 3) == [0, 4]
