"""What the KL is averaged over before the hinge, and κ in bits."""

from math import log

import pytest
import torch

from ftmodel.config import FreeBits
from ftmodel.designs.hinge import free_bits
from tests.support.mutants import rejects

LN2 = log(2)


@rejects("hinge.free_bits: kl«→.mean()» -", "hinge after averaging")
def test_what_the_kl_is_averaged_over_before_the_hinge():
    """By hand: KL of two rows of three tokens, bits, at κ = 1. κ is in bits, the loss in nats."""
    kl = torch.tensor([[0.0, 1.0, 5.0], [0.0, 3.0, 0.0]]) * LN2
    hinges = {over: free_bits(kl, 1.0, over).item() / LN2 for over in FreeBits}
    assert hinges == pytest.approx(
        {
            "token": (4 + 2) / 6,
            "sequence": ((2 - 1) + 0) / 2,
            "position": (0 + (2 - 1) + (2.5 - 1)) / 3,
            "batch": 1.5 - 1,
        }
    )
    for kappa in (0.0, 0.125, 3.0):
        loss = free_bits(torch.tensor([5 * LN2]), kappa)
        assert loss.item() == pytest.approx((5 - kappa) * LN2)


def test_the_hinge_of_a_whole_batch_is_the_same_on_every_worker():
    """Two workers with a row each; only a worker's own row has a gradient."""
    kl = torch.tensor([[0.0, 1.0, 5.0], [0.0, 3.0, 0.0]], requires_grad=True)
    whole = free_bits(kl, 1.0, FreeBits.position)
    worker = free_bits(kl[:1], 1.0, FreeBits.position, over_workers=lambda _: kl.detach().mean(0))
    assert worker.item() == pytest.approx(whole.item())
    (gradient,) = torch.autograd.grad(worker, kl)
    assert gradient[0].any() and not gradient[1].any()
