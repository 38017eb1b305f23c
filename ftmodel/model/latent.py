"""The latent of a Free Transformer: encoder, binary mapper, post-sampler and prior.

Shapes: B batch, T positions, D model width, H latent bits per token, … any leading dimensions.
"""

import torch
from torch import Tensor, nn

from ftmodel.config import ModelConfig
from ftmodel.designs.codebook import codebook
from ftmodel.designs.encoder import ENCODERS
from ftmodel.designs.noise import Draws
from ftmodel.designs.prior import PRIORS
from ftmodel.mapper import pack_bits
from ftmodel.positions import Positions


class Latent(nn.Module):
    """Encoder of z, its prior, and the post-sampler W, which embeds z: in the paper ζ's block, the
    uniform prior, and a table (2^H, D).
    """

    drawn_once = False
    purpose, reader = "a Free Transformer samples z", "the encoder must read"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        design, bits = config.latent, config.latent_bits
        self.width = bits
        self.encoder = ENCODERS[design.encoder](self, config)
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = nn.Linear(config.d_model, bits, bias=False)
        self.codebook = codebook(design)
        self.post_sampler = nn.Parameter(torch.empty(self.codebook.rows(bits), config.d_model))
        self.prior = PRIORS[design.prior](config)

    @property
    def blocks(self) -> list[nn.Module]:
        """The encoder's blocks."""
        return self.encoder.blocks(self)

    def encode(self, x: Tensor, at: Positions) -> Tensor:
        """Logits o (B, T, H) of the bits of z. The paper's encoder reads the lower half's
        activations x (B, T, D); a separate encoder reads the embedded tokens (B, T, D). Attention
        is not causal: a position reads its whole row, or its whole document. Autocast is off for
        the norm and the readout, so no logit is rounded to bf16.
        """
        y = self.encoder(self, x, at)
        with torch.autocast(y.device.type, enabled=False):
            return self.readout(self.norm(y)).float()

    def sample(self, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample z (…) from logits o (…, H) with ``noise`` (…, H), uniform on [0, 1); returns its
        embedding r (…, D) and z. Differentiable in the post-sampler and in o; the class
        ``Gradient`` in config.py describes the gradient in o.
        """
        return self.codebook.sample(o, noise, self.post_sampler)

    def draw(
        self, draws: Draws, x: Tensor, before: Tensor | None = None, last: Tensor | None = None
    ) -> Tensor:
        """Draw z (…) from the prior, which may read x and ``before``: bit h is [noise_h < p_h].
        ``last`` is the z of the token before the first, for a token that keeps it.
        """
        logits = self.prior(x, before)  # None: uniform, p_h = 1/2
        drawn = pack_bits(draws.noise < (0.5 if logits is None else logits.sigmoid()))
        return draws.choose(drawn, last)

    def embed(self, codes: Tensor) -> Tensor:
        """Embedding r (…, D) of given z (…)."""
        return self.codebook.embed(codes, self.post_sampler)

    def rms(self) -> Tensor:
        """RMS of r over all codes and channels."""
        return self.codebook.rms(self.post_sampler)
