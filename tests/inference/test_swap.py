"""Texts under z that are not their own: where each z comes from."""

import pytest
import torch
from torch.nn import functional as F

from ftmodel.inference.passes import with_codes
from ftmodel.inference.swap import another_document, codes_by_source, swapped_ce
from ftmodel.mapper import pack_bits
from tests.support.mutants import rejects
from tests.support.passes import pinned_noise

DONOR = torch.tensor([3, 4, 5, 0, 0, 1])


def test_samples_are_averaged(make_model, make_tokens, rng):
    """The mean over draws of the prior tends to that over all codes of a single position."""
    model, texts = make_model(latent_bits=2, n_layers=2), make_tokens(6, 2)
    ce = swapped_ce(model, texts, DONOR, 2000, 6, rng)
    each = []
    for code in range(4):
        logits = model.logits(with_codes(model, texts[:, :1], torch.full((6, 1), code)).hidden)
        each.append(F.cross_entropy(logits[:, 0], texts[:, 1], reduction="none").detach())
    spread = torch.stack(each).std(0).max().item()
    expected = torch.stack(each).mean(0).tolist()
    assert ce.prior.tolist() == pytest.approx(expected, abs=5 * spread / 2000**0.5)


@rejects("swap.codes_by_source: q), «starts→None»", "positions permuted that read one z")
@rejects(
    "swap.codes_by_source: «[:, first].gather(1, order)[:, span]→.gather(1, "
    "torch.rand(codes.shape, generator=generator).argsort(1))»",
    "a z read by several spans of a permuted text",
)
@pytest.mark.parametrize("width", [1, 4])
def test_where_the_codes_of_each_source_come_from(rng, width):
    """Where 4 tokens read one z, the z that are read of the permuted ones are those of the own, in
    another order.
    """
    codes = torch.randint(1 << 4, (6, 48 * width), generator=rng)
    certain = (pinned_noise(codes, 4) < 0).double()
    starts = None if width == 1 else (torch.arange(192) // 4 * 4)[None]
    by_source = codes_by_source(certain, starts, lambda noise: pack_bits(noise < 0.5), DONOR, rng)
    own, permuted = codes[:, ::width], by_source.permuted[:, ::width]
    assert torch.equal(by_source.own, own.repeat_interleave(width, dim=1))
    assert torch.equal(by_source.other, by_source.own[DONOR])
    assert torch.equal(by_source.permuted, permuted.repeat_interleave(width, dim=1))
    assert torch.equal(permuted.sort(1).values, own.sort(1).values)
    assert ((permuted != own).double().mean(1) > 0.7).all()
    assert set(by_source.prior.flatten().tolist()) == set(range(16))
    state = rng.get_state()
    q = torch.rand(certain.shape, generator=rng)  # a draw that equals q sets no bit
    rng.set_state(state)
    assert not codes_by_source(q, starts, lambda noise: noise, DONOR, rng).own.any()


def test_a_donor_is_of_another_document_and_each_of_them_may_be_one(rng):
    document = torch.tensor([0, 0, 0, 4, 4, 9])
    donors = torch.stack([another_document(document, rng) for _ in range(300)])
    assert (document[donors] != document).all()
    for text, own in enumerate(document.tolist()):
        others = {i for i, d in enumerate(document.tolist()) if d != own}
        assert set(donors[:, text].tolist()) == others
    assert another_document(torch.tensor([7, 5]), rng).tolist() == [1, 0]
    with pytest.raises(ValueError, match="one document"):
        another_document(torch.zeros(3), rng)
