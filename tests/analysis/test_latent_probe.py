"""The probe on channels whose information is known in closed form, or which have none."""

from itertools import pairwise, product
from math import comb, log2

import pytest
import torch

from ftmodel.analysis.use_of_z import cross_validated_mean, evaluate, fit
from tests.support.mutants import rejects

N = 8192


def drawn(p, rng):
    return (torch.rand(p.shape, generator=rng) < p).long()


def entropy(probabilities):
    return -sum(p * log2(p) for p in probabilities if p)


def channel(n, rng, encode, values):
    """The probe's result on bits of z (n, T, 1) that ``encode`` gives; fitted to other labels."""
    train, test = (torch.randint(values, (n,), generator=rng) for _ in range(2))
    probe = fit(encode(train)[..., None], train, values)
    return evaluate(probe, drawn(encode(test)[..., None], rng), test)


@rejects(
    "use_of_z.log_posteriors: «→.roll(-1, 1)» # log q(z_0", "a probe that has read the z after"
)
def test_a_label_written_out_is_known_digit_by_digit_and_not_before(rng):
    """One of 8, its binary digits at the tokens 1, 2 and 4, the others fair: q(z) is uniform."""

    def encode(labels):
        p = torch.full((len(labels), 6), 0.5)
        for digit, t in enumerate((1, 2, 4)):
            p[:, t] = labels >> digit & 1
        return p

    result = channel(N, rng, encode, 8)
    assert result.label_bits == pytest.approx([0, 1, 2, 2, 3, 3], abs=0.02)
    assert result.next_bits == pytest.approx([0] * 6, abs=0.01)
    assert result.aggregate_bits == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("wide", [0.0, 0.2])
def test_a_noisy_channel_used_again_and_again(rng, wide):
    """It errs one time in five; or one time in 2.5 at half the tokens, and never at the others."""

    def encode(labels):
        right = torch.where(torch.rand(len(labels), 6, generator=rng) < 0.5, 0.8 - wide, 0.8 + wide)
        return torch.where(labels[:, None] == 1, right, 1 - right)

    result = channel(4 * N, rng, encode, 2)
    of_z = [0.0]  # entropy of z_0 … z_t
    for n in range(1, 7):
        each = [(0.8**k * 0.2 ** (n - k) + 0.2**k * 0.8 ** (n - k)) / 2 for k in range(n + 1)]
        of_z.append(-sum(comb(n, k) * p * log2(p) for k, p in enumerate(each)))
    error = entropy((0.2, 0.8))
    assert result.label_bits == pytest.approx([of_z[n] - n * error for n in range(1, 7)], abs=0.02)
    assert result.next_bits == pytest.approx([1 + a - b for a, b in pairwise(of_z)], abs=0.02)
    assert result.aggregate_bits == pytest.approx(6 - of_z[-1], abs=0.05)


def test_nothing_is_known_from_what_does_not_depend_on_the_label(rng):
    """Even from z so sure that few sequences seem to say much: at most what they do say."""
    for n in (100, N):
        labels = torch.randint(57, (n,), generator=rng)
        probe = fit(drawn(torch.full((n, 9, 4), 0.5), rng), labels, 57)
        others = torch.randint(57, (N,), generator=rng)
        result = evaluate(probe, drawn(torch.full((N, 9, 4), 0.5), rng), others)
        assert result.label_bits[-1] == pytest.approx(0, abs=0.003)
        assert result.aggregate_bits == pytest.approx(0, abs=0.003)


def test_bits_that_lean_to_one_side_are_no_news_of_the_label_but_of_the_prior(rng):
    p = torch.full((N, 5, 2), 0.9)
    labels = torch.randint(7, (N,), generator=rng)
    result = evaluate(fit(p, labels, 7), drawn(p, rng), labels)
    lean = 2 * (1 - entropy((0.1, 0.9)))
    assert result.label_bits == pytest.approx([0] * 5, abs=1e-6)
    assert result.next_bits == pytest.approx([lean] * 5, abs=0.05)
    assert result.aggregate_bits == pytest.approx(5 * lean, abs=0.1)


def test_t_copies_of_a_bit_are_believed_as_one_with_exponent_1_over_t():
    """Exactly, as in either half of the sequences one bit in five errs."""
    right = torch.tensor([1, 1, 1, 1, 0]).repeat_interleave(2)
    probe = torch.tensor([0.2, 0.8], dtype=torch.float64)[:, None, None].expand(-1, 33, 1)
    bits = right[:, None, None].expand(-1, 33, 1)
    result = evaluate(probe, bits, torch.ones(10, dtype=torch.long))
    known, powers = 1 - entropy((0.2, 0.8)), {1, 2, 4, 8, 16, 32}
    for t, found in enumerate(result.label_bits, 1):
        assert (found == pytest.approx(known, rel=1e-9)) == (t in powers), t


def test_a_label_that_misleads_is_not_believed():
    """The first bit says label 1, whose second bit would be less often set than it is."""
    rates = [[0.2, 0.9, 0.9], [0.8, 0.6, 0.9]]
    probe = torch.tensor(rates, dtype=torch.float64)[..., None]
    bits = torch.tensor([1, 1, 0]).expand(2, -1)[..., None]
    result = evaluate(probe, bits, torch.zeros(2, dtype=torch.long))
    assert result.label_bits == pytest.approx([0, 0, 0], abs=1e-12)
    assert result.next_bits == pytest.approx([0, 1 + log2((0.9 + 0.6) / 2), 0], abs=1e-12)


def test_each_half_takes_the_exponent_that_is_best_in_the_other():
    """Means of the even and the odd sequences: 2 and 7 with the first exponent, 6 and 1 else."""
    log_q = torch.tensor([[1.0, 5, 3, 9], [4, 2, 8, 0]])[..., None]
    assert cross_validated_mean(log_q).tolist() == [(2 + 1) / 2]


def test_a_label_that_was_never_seen_and_a_bit_that_was_always_set_are_not_impossible():
    probe = fit(torch.ones(3, 2, 1), torch.tensor([0, 0, 1]), 3)
    assert ((probe > 0) & (probe < 1)).all()
    assert probe[:, 0, 0].tolist() == pytest.approx([(2 + 7 / 8) / 3, (1 + 7 / 8) / 2, 7 / 8])


def test_the_aggregates_kl_is_bounded_from_below(rng):
    """Of random tables of x and z (three bits) given a first token c: p(x | c) and q(z | x, c)."""
    codes = torch.tensor([*product((0, 1), repeat=3)])
    data = torch.rand(3, 5, generator=rng, dtype=torch.float64).softmax(1)
    p = torch.rand(3, 5, 3, generator=rng, dtype=torch.float64)
    encoder = torch.where(codes == 1, p[..., None, :], 1 - p[..., None, :]).prod(-1)
    aggregate = (data[..., None] * encoder).sum(1).mean(0)
    kl = 3 - entropy(aggregate.tolist())

    def draw(n):
        c = torch.randint(3, (n,), generator=rng)
        x = torch.multinomial(data[c], 1, generator=rng)[:, 0]
        return p[c, x][..., None], x

    train, train_labels = draw(N)
    test, test_labels = draw(N)
    result = evaluate(fit(train, train_labels, 5), drawn(test, rng), test_labels)
    assert 0.1 * kl < result.aggregate_bits < kl + 0.02
