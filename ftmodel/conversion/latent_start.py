"""A new latent in a trained decoder: quiet, so that the decoder goes on almost as before, but not
dead, so that the encoder learns from the first step.

Shapes: B batch, T positions, D model width, H latent bits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ftmodel.designs.hinge import LN2
from ftmodel.designs.noise import Draws
from ftmodel.inference.passes import upper_from_prior
from ftmodel.kernels.cross_entropy import linear_cross_entropy
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import kl_per_bit


@dataclass
class StartLosses:
    """Losses before the first step, nats per token of the same text."""

    parent: float  # negative log-likelihood of the decoder without z
    prior: float | None = None  # cross-entropy with z from the prior; None: there is no latent
    posterior: float | None = None  # with z from the encoder
    kl: float | None = None  # KL_t, mean over tokens


def stream_rms(x: Tensor) -> Tensor:
    """RMS over channels of activations x (B, T, D), median over tokens, because a few tokens of a
    trained Llama have norms hundreds of times larger than the rest.
    """
    return x.float().square().mean(-1).sqrt().median()


def readout_scale(o: Tensor, kl_bits: float) -> float:
    """The largest factor up to 1 for logits o (…, H) that keeps KL_t to the uniform prior, mean
    over tokens, at most ``kl_bits``. The KL rises with the factor, so bisection finds it.
    """

    def kl(scale: float) -> float:
        return kl_per_bit(o * scale).sum(-1).mean().item()

    if kl(1.0) <= kl_bits * LN2:
        return 1.0
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:  # until no number lies between
        low, high = (middle, high) if kl(middle) <= kl_bits * LN2 else (low, middle)
    return low


@torch.no_grad()
def begin_latent(
    model: FreeTransformer,
    tokens: Tensor,
    kappa_bits: float,
    share: float,
    copy_block: bool,
    documents: Tensor | None = None,
) -> None:
    """Scale the new latent of ``model``, whose decoder is trained, on ``tokens`` (B, T), with
    ``documents`` as in ``Positions.of``.

    The RMS of the post-sampler's vectors becomes ``share`` times the RMS of the residual stream at
    the block that reads z. The logits of z shrink until KL_t, mean over tokens, is at most
    κ = ``kappa_bits``. With ``copy_block`` a shared encoder's block becomes a copy of the block
    that reads z.
    """
    latent = model.latent
    assert latent is not None, "a baseline has no latent"
    if copy_block:
        assert model.config.latent.copies_block, "a separate encoder is like no decoder block"
        [block] = latent.blocks
        block.load_state_dict(model.blocks[model.config.lower_blocks].state_dict())
    at = model.positions(tokens, documents=documents)
    x = model.lower(tokens, at)
    latent.post_sampler.mul_(share * stream_rms(x) / latent.rms())
    o = model.encode(tokens, x, at)
    latent.readout.weight.mul_(readout_scale(o, kappa_bits))


@torch.no_grad()
def start_losses(
    model: FreeTransformer, rows: Tensor, noise: Tensor | None, documents: Tensor | None = None
) -> StartLosses:
    """Losses on ``rows`` (B, T + 1), whose last T tokens are predicted. ``noise`` (2, B, T, H),
    uniform on [0, 1), draws z from the prior and from the encoder.
    """
    inputs, targets = rows[:, :-1], rows[:, 1:]

    def ce(hidden: Tensor) -> float:
        weight = model.readout.weight
        return linear_cross_entropy(hidden.flatten(0, 1), weight, targets.flatten()).item()

    at = model.positions(inputs, documents=documents)
    x = model.lower(inputs, at)
    losses = StartLosses(ce(model.upper(x, None, at)))
    if noise is not None:
        assert model.latent is not None
        latent = model.latent
        o = model.encode(inputs, x, at)
        losses.prior = ce(upper_from_prior(model, x, Draws(noise[0]), at)[0])
        hidden = model.upper(x, latent.sample(o, noise[1])[0], at)
        losses.posterior = ce(hidden)
        prior = model.prior_logits(x, at, hidden)
        losses.kl = kl_per_bit(o, prior).sum(-1).mean().item()
    return losses
