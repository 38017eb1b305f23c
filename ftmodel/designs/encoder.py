"""Encoders, which give the posterior: activations from which the logits of z's bits are read.

Parameters belong to `Latent`, under the names that checkpoints have.

Shapes: B batch, T positions, D model width.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ftmodel.config import Encoder, ModelConfig
from ftmodel.layers import Block
from ftmodel.positions import Positions


class SharedEncoder:
    """One block that ζ queries, over the lower half's activations (the paper, § 3.3)."""

    reads_embeddings = False

    def __init__(self, latent: Any, config: ModelConfig) -> None:
        """Add its blocks to ``latent``."""
        latent.zeta = nn.Parameter(torch.empty(1, 1, config.d_model))
        latent.encoder_block = Block(config)

    def __call__(self, latent: Any, x: Tensor, at: Positions) -> Tensor:
        """Encode x (B, T, D), not causally, to activations (B, T, D). x are the lower half's
        activations, or the embedded tokens if the encoder ``reads_embeddings``.
        """
        return latent.encoder_block(latent.zeta, x, at, causal=False)  # q = ζ, kv = x

    def blocks(self, latent: Any) -> list[nn.Module]:
        return [latent.encoder_block]


class SeparateEncoder:
    """An encoder with its own blocks, over token embeddings that encoder and decoder train."""

    reads_embeddings = True

    def __init__(self, latent: Any, config: ModelConfig) -> None:
        layers = range(config.n_encoder_blocks)
        latent.encoder_blocks = nn.ModuleList(Block(config) for _ in layers)

    def __call__(self, latent: Any, x: Tensor, at: Positions) -> Tensor:
        for block in latent.encoder_blocks:
            x = block(x, None, at, causal=False)
        return x

    def blocks(self, latent: Any) -> list[nn.Module]:
        return [*latent.encoder_blocks]


ENCODERS: dict[Encoder, type[SharedEncoder] | type[SeparateEncoder]] = {
    Encoder.shared: SharedEncoder,
    Encoder.separate: SeparateEncoder,
}
