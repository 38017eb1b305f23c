"""Texts under z that are not their own: where each z comes from."""

import pytest
import torch
from torch.nn import functional as F

from ftmodel.inference.swap import another_document, codes_by_source, swapped_ce
from ftmodel.model.mapper import pack_bits, pinned_noise
from tests.support.mutants import rejects

DONOR = torch.tensor([3, 4, 5, 0, 0, 1])


def test_a_model_that_ignores_z_has_no_difference(make_model, make_tokens, rng):
    """With a post-sampler of zeros every z adds nothing."""
    model, texts = make_model(), make_tokens(6, 10)
    with torch.no_grad():
        model.latent.post_sampler.zero_()
    ce = swapped_ce(model, texts, DONOR, 2, 4, rng)
    for source in (ce.prior, ce.other, ce.permuted):
        torch.testing.assert_close(source, ce.own, atol=1e-6, rtol=0)


def test_samples_are_averaged(make_model, make_tokens, rng):
    """The mean over draws of the prior tends to that over all codes of a single position."""
    model, texts = make_model(latent_bits=2), make_tokens(6, 2)
    ce = swapped_ce(model, texts, DONOR, 500, 6, rng)
    each = []
    for code in range(4):
        logits = model.logits(model(texts[:, :1], codes=torch.full((6, 1), code)).hidden)
        each.append(F.cross_entropy(logits[:, 0], texts[:, 1], reduction="none").detach())
    spread = torch.stack(each).std(0).max().item()
    expected = torch.stack(each).mean(0).tolist()
    assert ce.prior.tolist() == pytest.approx(expected, abs=5 * spread / 500**0.5)


@rejects(
    "inference/swap.py",
    "codes[:, first].gather(1, order)[:, span]",
    "codes.gather(0, torch.rand(codes.shape, generator=generator).argsort(0))",
    "z permuted over texts in place of positions",
)
def test_where_the_codes_of_each_source_come_from(rng):
    codes = torch.randint(1 << 4, (6, 50), generator=rng)
    certain = (pinned_noise(codes, 4) < 0).double()
    by_source = codes_by_source(certain, None, lambda noise: pack_bits(noise < 0.5), DONOR, rng)
    assert torch.equal(by_source.own, codes) and torch.equal(by_source.other, codes[DONOR])
    assert torch.equal(by_source.permuted.sort(1).values, codes.sort(1).values)
    moved = (by_source.permuted != codes).double().mean(1)
    assert (moved > 0.7).all()
    assert by_source.prior.shape == codes.shape
    assert set(by_source.prior.flatten().tolist()) == set(range(16))


@rejects(
    "inference/swap.py",
    "at_starts(pack_bits(torch.rand(q.shape, generator=generator) < q), starts)",
    "pack_bits(torch.rand(q.shape, generator=generator) < q)",
    "single positions permuted where several read one z",
)
@rejects(
    "inference/swap.py",
    "codes[:, first].gather(1, order)[:, span]",
    "codes.gather(1, torch.rand(codes.shape, generator=generator).argsort(1))",
    "a z read by several spans of a permuted text",
)
def test_z_of_several_tokens_are_permuted_whole(rng):
    """The z that are read after it are those that were read before, in another order."""
    q, starts = torch.full((6, 48, 4), 0.5), (torch.arange(48) // 4 * 4)[None]
    by_source = codes_by_source(q, starts, lambda noise: pack_bits(noise < 0.5), DONOR, rng)
    own, permuted = by_source.own[:, ::4], by_source.permuted[:, ::4]
    assert torch.equal(by_source.own, own.repeat_interleave(4, dim=1))
    assert torch.equal(own.sort(1).values, permuted.sort(1).values)
    assert ((permuted != own).double().mean(1) > 0.6).all()


@rejects("inference/swap.py", "!= document", "!= -1 - document", "a text that may be its own donor")
def test_a_donor_is_of_another_document_and_each_of_them_may_be_one(rng):
    document = torch.tensor([0, 0, 0, 4, 4, 9])
    donors = torch.stack([another_document(document, rng) for _ in range(300)])
    assert (document[donors] != document).all()
    for text, own in enumerate(document.tolist()):
        others = {i for i, d in enumerate(document.tolist()) if d != own}
        assert set(donors[:, text].tolist()) == others
    with pytest.raises(ValueError, match="one document"):
        another_document(torch.zeros(3), rng)
