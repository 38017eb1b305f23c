"""A new latent in a trained decoder: quiet, so that the decoder goes on almost as it was, but not
dead, so that the encoder learns from the first step.

Shapes: B batch, T positions, D model width, H latent bits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ftmodel.model.cross_entropy import linear_cross_entropy
from ftmodel.model.objective import LN2, kl_per_bit
from ftmodel.model.transformer import FreeTransformer

HALVINGS = 50  # of the interval that the read-out's scale lies in


@dataclass
class StartLosses:
    """Before the first step, nats per token of the same text."""

    parent: float  # negative log-likelihood of the decoder without z
    prior: float | None = None  # cross-entropy with z from the prior; None: there is no latent
    posterior: float | None = None  # with z from the encoder
    kl: float | None = None  # KL_t, mean over tokens


def stream_rms(x: Tensor) -> Tensor:
    """RMS over channels of activations x (B, T, D), median over tokens: a few tokens of a trained
    Llama have a norm hundreds of times that of the others.
    """
    return x.float().square().mean(-1).sqrt().median()


def readout_scale(o: Tensor, kl_bits: float) -> float:
    """The largest factor up to 1 of logits o (…, H) with which the mean over tokens of KL_t to the
    uniform prior is at most ``kl_bits``: KL rises with it. By bisection.
    """

    def kl(scale: float) -> float:
        return kl_per_bit(o * scale).sum(-1).mean().item()

    if kl(1.0) <= kl_bits * LN2:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
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
    """Scale the initial latent of ``model``, whose decoder is trained, on ``tokens`` (B, T), with
    ``documents`` as in ``FreeTransformer.forward``.

    The post-sampler's vectors get an RMS of ``share`` times that of the residual stream at the
    block that reads z; the logits of z shrink until KL_t, mean over tokens, is at most κ
    ``kappa_bits``; with ``copy_block`` a shared encoder's block is a copy of the one that
    reads z.
    """
    latent = model.latent
    assert latent is not None, "a baseline has no latent"
    if copy_block:
        assert latent.zeta is not None, "a separate encoder reads what no block of the decoder does"
        latent.encoder_block.load_state_dict(model.blocks[model.config.lower_blocks].state_dict())
    positions = model.positions(0, tokens.shape[1], tokens.device, documents)
    x = model.lower(tokens, positions)
    latent.post_sampler.mul_(share * stream_rms(x) / latent.rms())
    o = model.encode(tokens, x, positions)
    latent.readout.weight.mul_(readout_scale(o, kappa_bits))


@torch.no_grad()
def start_losses(
    model: FreeTransformer, rows: Tensor, noise: Tensor | None, documents: Tensor | None = None
) -> StartLosses:
    """Of ``rows`` (B, T + 1), whose last T tokens are predicted; ``noise`` (2, B, T, H), uniform on
    [0, 1), for z from the prior and for z from the encoder.
    """
    inputs, targets = rows[:, :-1], rows[:, 1:]

    def ce(hidden: Tensor) -> float:
        weight = model.readout.weight
        return linear_cross_entropy(hidden.flatten(0, 1), weight, targets.flatten()).item()

    positions = model.positions(0, inputs.shape[1], inputs.device, documents)
    x = model.lower(inputs, positions)
    losses = StartLosses(ce(model.upper(x, None, positions)))
    if noise is not None:
        assert model.latent is not None
        latent = model.latent
        o = model.encode(inputs, x, positions)
        losses.prior = ce(model.upper_from_prior(x, noise[0], positions, documents)[0])
        hidden = model.upper(x, latent.sample(o, noise[1])[0], positions)
        losses.posterior = ce(hidden)
        prior = model.prior_logits(x, positions, hidden, documents)
        losses.kl = kl_per_bit(o, prior).sum(-1).mean().item()
    return losses
