"""The truth about models so small that every z can be enumerated."""

from itertools import product

import pytest
import torch

from ftmodel.inference.passes import with_codes
from tests.support.dense_form import per_token
from tests.support.designs import EVERY


class Exact:
    """All z of one pair of inputs and targets (T,), of S spans of tokens that share a latent code:
    their CE and posterior, hence every bound.
    """

    @torch.no_grad()
    def __init__(self, model, inputs, targets):
        t, h = len(inputs), model.config.latent_bits
        width = {"token": 1, "every": EVERY, "sequence": t}[model.config.latent.per]
        starts = torch.arange(0, t, width)
        z = torch.tensor(list(product(range(1 << h), repeat=len(starts))))  # (2^{H S}, S)
        self.codes = codes = z.repeat_interleave(width, dim=1)[:, :t]
        hidden = with_codes(per_token(model), inputs.expand_as(codes), codes).hidden
        log_p = model.logits(hidden).double().log_softmax(-1)
        self.ce = -log_p.gather(2, targets.expand_as(codes)[..., None]).sum((1, 2))
        o = model(inputs[None], noise=torch.zeros(1, t, h)).bit_logits[0, starts].double()
        ones = (z[..., None] >> torch.arange(h) & 1).bool()  # (2^{H S}, S, H)
        self.q = torch.where(ones, o.sigmoid(), 1 - o.sigmoid()).prod(-1).prod(-1)
        bit = self.prior_probability(model, inputs, hidden, starts)
        self.p = torch.where(ones, bit, 1 - bit).prod(-1).prod(-1)
        self.nll = -(self.p * (-self.ce).exp()).sum().log().item()
        self.posterior = self.p * (self.nll - self.ce).exp()  # p(z | x)
        self.posterior_ce = (self.q * self.ce).sum().item()
        self.kl = (self.q * (self.q / self.p).log()).sum().item()
        self.prior_ce = (self.p * self.ce).sum().item()

    def prior_probability(self, model, inputs, hidden, starts):
        """sigmoid(W norm(x_t)), from the blocks below the one that reads z; a recurrent one reads
        the hidden state (2^{H S}, T, D) at the token before, too, which is 0 before the first.
        (S, H); or (2^{H S}, S, H), of each z; or 1/2.
        """
        if model.config.latent.prior == "uniform":
            return torch.tensor(0.5, dtype=torch.float64)
        x = model.lower(inputs[None], model.positions(inputs[None]))[0].double()
        x = x / (x.square().mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
        w = {name: each.double() for name, each in model.latent.prior.state_dict().items()}
        x = (x * w["norm.weight"])[starts]
        if model.config.latent.prior == "recurrent":
            before = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), dim=1).double()
            before = before[:, starts]
            x = torch.cat((x.expand_as(before), before), dim=-1)
        return (x @ w["readout.weight"].T).sigmoid()


def assert_near(values, expected):
    """The mean of independent estimates lies within 4 standard errors of what is expected."""
    error = values.std().item() / len(values) ** 0.5
    assert values.mean().item() == pytest.approx(expected, abs=4 * error + 1e-5)
