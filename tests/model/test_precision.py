"""Under bf16 autocast the logits of bits, the KL and the losses are float32, and not rounded."""

import pytest
import torch
from torch.nn import functional as F

from ftmodel.designs.hinge import free_bits
from ftmodel.mapper import binary_mapper
from ftmodel.model.objective import kl_per_bit, training_loss
from tests.support.mutants import rejects

KAPPA = 0.5


def rounded(x):
    """Whether each value of x is one that bf16 has."""
    return x == x.bfloat16().float()


@rejects("objective.training_loss: «sum(-1)→bfloat16().sum(-1).float()»,", "KL summed in bf16")
@pytest.mark.parametrize("encoder", ["shared", "separate"])
def test_logits_of_bits_and_losses_are_float32_and_not_rounded(
    make_model, make_tokens, rng, encoder
):
    """In bf16 a logit of ±5 is off by 0.01, the KL by 1e-3; logits of tokens are bf16 products."""
    model, tokens, seen = make_model(latent={"encoder": encoder}), make_tokens(4, 17), []
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    noise = torch.rand(4, 16, 3, generator=rng)
    model.latent.blocks[-1].register_forward_hook(lambda *call: seen.append(call[-1]))
    with torch.autocast("cpu", torch.bfloat16):
        out = model(inputs, noise)
        loss = training_loss(model, inputs, targets, noise, KAPPA)
        logits = model.logits(out.hidden)
    o = out.bit_logits
    assert o.dtype == torch.float32 and rounded(o).float().mean() < 0.1
    torch.testing.assert_close(o, model.latent.readout(model.latent.norm(seen[0].float())))
    kl = kl_per_bit(o.double()).sum(-1)
    ce = F.cross_entropy(logits.double().flatten(0, 1), targets.flatten())
    for value, exact, rel in (
        (loss.kl, kl.mean(), 1e-5),
        (loss.hinge, free_bits(kl, KAPPA), 1e-5),
        (loss.ce, ce, 1e-4),
        (loss.total, loss.ce + loss.hinge, 1e-6),
    ):
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=rel)
    assert not rounded(loss.ce) and not rounded(loss.total)


def test_the_mappers_sums_over_codes_are_float32(rng):
    """Of bits that are nearly certain; g = ρ W, multiples of 1/8, is exact in bf16."""
    o = torch.tensor([6.0, -6.0, 5.0, -5.0]).expand(50, 4).clone().requires_grad_()
    noise = torch.rand(50, 4, generator=rng)
    table = 8 + torch.randint(8, (16, 1), generator=rng) / 8
    (exact,) = torch.autograd.grad(binary_mapper(o, noise, table)[0].sum(), o)
    with torch.autocast("cpu", torch.bfloat16):
        (half,) = torch.autograd.grad(binary_mapper(o, noise, table)[0].sum(), o)
    torch.testing.assert_close(half, exact)
