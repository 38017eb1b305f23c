"""The truth about models so small that every z can be enumerated."""

from itertools import product

import pytest
import torch

from ftmodel.inference.passes import with_codes


class Exact:
    """All z of one pair of inputs and targets (T,): their CE and posterior, hence every bound."""

    @torch.no_grad()
    def __init__(self, model, inputs, targets):
        t, h = len(inputs), model.config.latent_bits
        z = torch.tensor(list(product(range(1 << h), repeat=t)))  # (2^{H T}, T)
        hidden = with_codes(model, inputs.expand_as(z), z).hidden
        logits = model.logits(hidden).double()
        self.ce = -logits.log_softmax(-1).gather(2, targets.expand_as(z)[..., None]).sum((1, 2))
        o = model(inputs[None], noise=torch.zeros(1, t, h)).bit_logits[0].double()
        ones = (z[..., None] >> torch.arange(h) & 1).bool()  # (2^{H T}, T, H)
        self.q = torch.where(ones, o.sigmoid(), 1 - o.sigmoid()).prod(-1).prod(-1)
        bit = self.prior_probability(model, inputs, hidden)  # (T, H), or each z's, or a half
        self.p = torch.where(ones, bit, 1 - bit).prod(-1).prod(-1)
        self.nll = -(self.p * (-self.ce).exp()).sum().log().item()
        self.posterior_ce = (self.q * self.ce).sum().item()
        self.kl = (self.q * (self.q / self.p).log()).sum().item()
        self.prior_ce = (self.p * self.ce).sum().item()

    def prior_probability(self, model, inputs, hidden):
        """sigmoid(W norm(x_t)), from the blocks below the one that reads z; a recurrent one reads
        the hidden state (2^{H T}, T, D) at the token before, too, which is 0 before the first.
        """
        if model.config.latent.prior == "uniform":
            return torch.tensor(0.5, dtype=torch.float64)
        x = model.lower(inputs[None], model.positions(inputs[None]))[0].double()
        x = x / (x.square().mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
        w = {name: each.double() for name, each in model.latent.prior.state_dict().items()}
        x = x * w["norm.weight"]
        if model.config.latent.prior == "recurrent":
            before = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), dim=1).double()
            x = torch.cat((x.expand_as(before), before), dim=-1)
        return (x @ w["readout.weight"].T).sigmoid()


def assert_near(values, expected):
    """The mean of independent estimates lies within 4 standard errors of what is expected."""
    error = values.std().item() / len(values) ** 0.5
    assert values.mean().item() == pytest.approx(expected, abs=4 * error + 1e-5)
