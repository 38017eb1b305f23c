"""The latent of a Free Transformer: encoder, and post-sampler, which embeds z.

Shapes: B batch, T positions, D model width, H latent bits per token, … any leading dimensions.
"""

import torch
from torch import Tensor, nn

from ftmodel.model.config import ModelConfig
from ftmodel.model.latent_design import Encoder, Gradient, Map, Prior
from ftmodel.model.layers import Block, Positions
from ftmodel.model.mapper import binary_mapper, pack_bits
from ftmodel.model.mapper_variants import embedding, linear_mapper, sampled_mapper
from ftmodel.model.product import Linear


class LearnedPrior(nn.Module):
    """Logits of the bits of z_t given the tokens up to t and, if it is recurrent, the z before it;
    at first all 0, as of the uniform prior.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.recurrent = config.latent.prior == Prior.recurrent
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = Linear((1 + self.recurrent) * config.d_model, config.latent_bits)

    def forward(self, x: Tensor, before: Tensor | None) -> Tensor:
        """Logits (…, H), float32, of the lower half's causal activations x (…, D) and of the upper
        half's at the token ``before`` (…, D), which only a recurrent prior reads.
        """
        with torch.autocast(x.device.type, enabled=False):
            y = self.norm(x)
            if self.recurrent:
                assert before is not None, "a recurrent prior follows the upper half"
                y = torch.cat((y.expand_as(before), before.type_as(y)), dim=-1)
            return self.readout(y).float()


class Latent(nn.Module):
    """Encoder of z from the lower half's activations, or from the embeddings of the tokens; its
    prior; and the post-sampler, which embeds z.

    A separate encoder has no ζ: its blocks are ordinary ones but for causality. It has no embedding
    of its own either, but reads the decoder's, which learns from both.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.zeta = None
        if config.latent.encoder == Encoder.shared:
            self.zeta = nn.Parameter(torch.empty(1, 1, config.d_model))
            self.encoder_block = Block(config)
        else:
            self.encoder_blocks = nn.ModuleList(
                Block(config) for _ in range(config.n_encoder_blocks)
            )
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = Linear(config.d_model, config.latent_bits)
        self.design, bits = config.latent, config.latent_bits
        rows = bits if self.design.map == Map.linear else 1 << bits
        self.post_sampler = nn.Parameter(torch.empty(rows, config.d_model))
        self.prior = None if self.design.prior == Prior.uniform else LearnedPrior(config)

    @property
    def blocks(self) -> list[nn.Module]:
        """Of the encoder."""
        return [*self.encoder_blocks] if self.zeta is None else [self.encoder_block]

    def encode(self, x: Tensor, positions: Positions) -> Tensor:
        """Logits o (B, T, H) of the bits of z, from x (B, T, D) as ``FreeTransformer.encode`` gives
        it. Every position reads all of x, or all of its own document. Float32 from the norm on,
        under autocast too: no bit's logit is rounded to bf16.
        """
        if self.zeta is not None:
            y = self.encoder_block(self.zeta, x, positions, causal=False)  # q = zeta, kv = x
        else:
            y = x
            for block in self.encoder_blocks:
                y = block(y, None, positions, causal=False)
        with torch.autocast(y.device.type, enabled=False):
            return self.readout(self.norm(y)).float()

    def sample(self, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding r (…, D) of z sampled from logits o (…, H) with ``noise`` (…, H), uniform on
        [0, 1), and z itself (…). Differentiable in o, as ``LatentDesign.gradient`` says, and in the
        post-sampler.
        """
        if self.design.map == Map.linear:
            return linear_mapper(o, noise, self.post_sampler, self.design.gradient)
        if self.design.gradient == Gradient.all_codes:
            return binary_mapper(o, noise, self.post_sampler)
        return sampled_mapper(o, noise, self.post_sampler, self.design.gradient)

    @property
    def recurrent(self) -> bool:
        """Whether z_t of the prior needs the z before it."""
        return self.prior is not None and self.prior.recurrent

    def prior_logits(self, x: Tensor, before: Tensor | None = None) -> Tensor | None:
        """Logits (…, H) of the prior's bits, given activations x (…, D) of the lower half and, to a
        recurrent prior, those of the upper half at the token ``before`` (…, D); None for the
        uniform prior, whose logits are 0.
        """
        return None if self.prior is None else self.prior(x, before)

    def draw(self, noise: Tensor, x: Tensor, before: Tensor | None = None) -> Tensor:
        """z (…) of the prior, given what ``prior_logits`` reads: bits [noise_h < p_h] of ``noise``
        (…, H), uniform on [0, 1); −1 sets a bit and 1 clears it.
        """
        logits = self.prior_logits(x, before)
        return pack_bits(noise < (0.5 if logits is None else logits.sigmoid()))

    def embed(self, codes: Tensor) -> Tensor:
        """Embedding r (…, D) of given z (…)."""
        return embedding(codes, self.post_sampler, self.design.map == Map.linear)

    def rms(self) -> Tensor:
        """RMS of r over all codes and channels: the signs of bits are independent."""
        squares = self.post_sampler.square()
        return (squares.sum(0) if self.design.map == Map.linear else squares).mean().sqrt()
