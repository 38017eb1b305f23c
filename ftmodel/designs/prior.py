"""Priors: generation draws z from one, and the KL is taken to it. They own their parameters.

Shapes: D model width, H latent bits, … any leading dimensions.
"""

import torch
from torch import Tensor, nn

from ftmodel.config import ModelConfig, Prior


class UniformPrior(nn.Module):
    """All 2^H codes are equally probable (the paper)."""

    sequential = False  # whether the prior of z_t depends on earlier z

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor, before: Tensor | None) -> None:
        """No logits: each bit has probability 1/2."""


class LearnedPrior(nn.Module):
    """Logits of the bits of z_t given the tokens up to t, at first all 0."""

    sequential = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        inputs = (1 + self.sequential) * config.d_model
        self.readout = nn.Linear(inputs, config.latent_bits, bias=False)

    def forward(self, x: Tensor, before: Tensor | None) -> Tensor:
        """Logits (…, H), float32 under autocast too, of the lower half's causal x (…, D)."""
        with torch.autocast(x.device.type, enabled=False):
            return self.readout(self.read(self.norm(x), before)).float()

    def read(self, x: Tensor, before: Tensor | None) -> Tensor:
        return x


class RecurrentPrior(LearnedPrior):
    """Also reads the upper half's activations at the token ``before`` (…, D), so earlier z too."""

    sequential = True

    def read(self, x: Tensor, before: Tensor | None) -> Tensor:
        assert before is not None, "a recurrent prior follows the upper half"
        return torch.cat((x.expand_as(before), before.type_as(x)), dim=-1)


PRIORS: dict[Prior, type[nn.Module]] = {
    Prior.uniform: UniformPrior,
    Prior.learned: LearnedPrior,
    Prior.recurrent: RecurrentPrior,
}
