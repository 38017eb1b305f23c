"""The way from one z to another: which bits it changes, and the cross-entropy that is measured."""

from itertools import pairwise

import torch
from torch.nn import functional as F

from ftmodel.inference.passes import with_codes
from ftmodel.inference.swap import SHARES, interpolated_ce, paths, posterior
from ftmodel.mapper import pack_bits
from tests.support.mutants import rejects

DONOR = torch.tensor([1, 2, 0, 4, 3])


@rejects("swap.paths: «.masked_fill(~differ, torch.inf)→»", "bits that agree are changed")
def test_a_path_changes_the_differing_bits_in_steps_and_random_ones_as_many(rng):
    bits, other = torch.rand(2, 400, 16, generator=rng) < 0.5
    toward, at_random = paths(bits, other, rng)
    assert torch.equal(toward[0], bits) and torch.equal(toward[-1], other)
    assert torch.equal(at_random[0], bits)
    differ = (bits != other).sum(1)
    for share, path, null in zip(SHARES, toward, at_random, strict=True):
        changed = path != bits
        assert not (changed & (bits == other)).any(), "only bits in which they differ"
        assert torch.equal(changed.sum(1), (share * differ).round().long())
        assert torch.equal((null != bits).sum(1), changed.sum(1))
    for before, after in pairwise(toward):
        assert not ((before != bits) & (after == bits)).any(), "no bit is changed back"
    where = (at_random[2] != bits).double().mean(0)
    assert (where - where.mean()).abs().max() < 0.1, "any bit may be chosen"
    assert ((at_random[2] != bits) & (bits == other)).any()


@rejects("swap.interpolated_ce: «at_random→toward»))", "the end's null led to its own z")
@torch.no_grad()
def test_both_texts_are_read_with_each_z_of_the_path(make_model, make_tokens, rng):
    model, texts = make_model(latent={"per": "sequence"}), make_tokens(5, 8)
    model.latent.readout.weight.mul_(1e6)  # so that there is one z
    q = posterior(model, texts, 2).clone()
    out = model(texts[:, :-1], noise=torch.full((5, 7, 3), 0.5))
    assert torch.equal(pack_bits(q > 0.5), out.codes[:, 0])
    state = rng.get_state()
    q[0] = torch.rand(q.shape, generator=rng)[0]  # a draw that equals q sets no bit
    rng.set_state(state)
    ce = interpolated_ce(model, texts, q, DONOR, 2, rng)
    rng.set_state(state)
    bits = torch.rand(q.shape, generator=rng) < q
    toward, at_random = paths(bits, bits[DONOR], rng)
    read = (
        (ce.start, texts, toward),
        (ce.end, texts[DONOR], toward),
        (ce.random, texts, at_random),
        (ce.end_random, texts[DONOR], at_random),
    )
    for nats, text, path in read:
        for values, z in zip(nats, path, strict=True):
            codes = pack_bits(z)[:, None].expand(-1, 7)
            logits = model.logits(with_codes(model, text[:, :-1], codes).hidden)
            nll = F.cross_entropy(logits.mT, text[:, 1:], reduction="none").sum(1)
            torch.testing.assert_close(values, nll.double(), atol=1e-4, rtol=1e-5)
    assert not torch.allclose(ce.start[0], ce.start[-1])
