"""The truth about models so small that every z can be enumerated."""

from itertools import product

import pytest
import torch


class Exact:
    """All z of one pair of inputs and targets (T,): their CE and posterior, hence every bound."""

    @torch.no_grad()
    def __init__(self, model, inputs, targets):
        t, h = len(inputs), model.config.latent_bits
        z = torch.tensor(list(product(range(1 << h), repeat=t)))  # (2^{H T}, T)
        logits = model.logits(model(inputs.expand_as(z), codes=z).hidden).double()
        self.ce = -logits.log_softmax(-1).gather(2, targets.expand_as(z)[..., None]).sum((1, 2))
        o = model(inputs[None], noise=torch.zeros(1, t, h)).bit_logits[0].double()
        ones = (z[..., None] >> torch.arange(h) & 1).bool()  # (2^{H T}, T, H)
        self.q = torch.where(ones, o.sigmoid(), 1 - o.sigmoid()).prod(-1).prod(-1)
        self.nll = -(-self.ce).exp().mean().log().item()
        self.posterior_ce = (self.q * self.ce).sum().item()
        self.kl = (self.q * (self.q * len(z)).log()).sum().item()
        self.prior_ce = self.ce.mean().item()


def assert_near(values, expected):
    """The mean of independent estimates lies within 4 standard errors of what is expected."""
    error = values.std().item() / len(values) ** 0.5
    assert values.mean().item() == pytest.approx(expected, abs=4 * error + 1e-5)
