"""The latent of a Free Transformer: encoder, binary mapper, post-sampler and prior.

Shapes: B batch, T positions, D model width, H latent bits per token, … any leading dimensions.
"""

import torch
from torch import Tensor, nn

from ftmodel.designs.codebook import codebook
from ftmodel.designs.encoder import ENCODERS
from ftmodel.designs.prior import PRIORS
from ftmodel.model.config import ModelConfig
from ftmodel.model.mapper import pack_bits
from ftmodel.model.positions import Positions


class Latent(nn.Module):
    """Encoder of z, its prior, and the post-sampler W, which embeds z: in the paper ζ's block, the
    uniform prior, and a table (2^H, D).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        design, bits = config.latent, config.latent_bits
        self.encoder = ENCODERS[design.encoder](self, config)
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = nn.Linear(config.d_model, bits, bias=False)
        self.codebook = codebook(design)
        self.post_sampler = nn.Parameter(torch.empty(design.table_rows(bits), config.d_model))
        self.prior = PRIORS[design.prior](config)

    @property
    def blocks(self) -> list[nn.Module]:
        """Of the encoder."""
        return self.encoder.blocks(self)

    def encode(self, embedded: Tensor, x: Tensor, at: Positions) -> Tensor:
        """Logits o (B, T, H) of the bits of z, from embedded tokens (B, T, D) or from the lower
        half's activations x (B, T, D). Every position reads all of them, or all of its own
        document. Float32 from the norm on, under autocast too: no bit's logit is rounded to bf16.
        """
        y = self.encoder(self, embedded, x, at)
        with torch.autocast(y.device.type, enabled=False):
            return self.readout(self.norm(y)).float()

    def sample(self, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding r (…, D) of z sampled from logits o (…, H) with ``noise`` (…, H), uniform on
        [0, 1), and z itself (…). Differentiable in o, as ``LatentDesign.gradient`` says, and in the
        post-sampler.
        """
        return self.codebook.sample(o, noise, self.post_sampler)

    def draw(self, noise: Tensor, x: Tensor, before: Tensor | None = None) -> Tensor:
        """z (…) of the prior, given what it reads: bits [noise_h < p_h] of ``noise`` (…, H),
        uniform on [0, 1); −1 sets a bit and 1 clears it.
        """
        logits = self.prior(x, before)
        return pack_bits(noise < (0.5 if logits is None else logits.sigmoid()))

    def embed(self, codes: Tensor) -> Tensor:
        """Embedding r (…, D) of given z (…)."""
        return self.codebook.embed(codes, self.post_sampler)

    def rms(self) -> Tensor:
        """RMS of r over all codes and channels."""
        return self.codebook.rms(self.post_sampler)
