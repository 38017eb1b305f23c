"""The parts of a Free Transformer that may be exchanged: what each of them must do.

Each module named below has the paper's part first, then its alternatives. `LatentDesign` selects
among them. Only a prior owns parameters. Those of the other parts belong to `Latent` or to
the decoder's blocks, under the names that checkpoints have.

Shapes: B batch, T positions, D model width, H latent bits, … any leading dimensions.
"""

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from ftmodel.model.config import ModelConfig
from ftmodel.model.positions import Positions


class Encoder(Protocol):
    """encoder.py."""

    reads_embeddings: bool

    def __init__(self, latent: Any, config: ModelConfig) -> None:
        """Add its blocks to ``latent``."""

    def __call__(self, latent: Any, x: Tensor, at: Positions) -> Tensor:
        """Activations (B, T, D), not causal, of x (B, T, D): the embedded tokens, or the lower
        half's activations.
        """

    def blocks(self, latent: Any) -> list[nn.Module]: ...


class Codebook(Protocol):
    """codebook.py: what the rows of the post-sampler's W mean."""

    def rows(self, bits: int) -> int:
        """Rows of W for H = ``bits``."""

    def sample(self, o: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """r (…, D) and z (…) with bits [noise_h < sigmoid(o_h)], o and noise (…, H);
        differentiable in o and W.
        """

    def embed(self, z: Tensor, weight: Tensor) -> Tensor:
        """r (…, D) of z (…)."""

    def rms(self, weight: Tensor) -> Tensor:
        """RMS of r over all codes and channels."""


class Prior(Protocol):
    """prior.py, modules."""

    sequential: bool  # whether the prior of z_t depends on earlier z

    def __call__(self, x: Tensor, before: Tensor | None) -> Tensor | None:
        """Logits (…, H) of the bits of z_t; None if the prior is uniform. Reads the lower half's
        activations x (…, D). If sequential, also reads ``before`` (…, D), the upper half's
        activations at the previous token.
        """


class BlockInput(NamedTuple):
    """What a block reads."""

    stream: Tensor  # the residual stream (B, T, D)
    kv: Tensor | None = None  # what keys and values are computed from; None: the stream


class Injection(Protocol):
    """injection.py."""

    def __init__(self, config: ModelConfig) -> None: ...

    def __call__(self, n: int, x: Tensor, r: Tensor) -> BlockInput:
        """What block n, counted from 0, reads of x and r (B, T, D)."""

    def block(self, n: int) -> nn.Module:
        """A new block n."""
