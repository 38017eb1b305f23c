"""Where the z of a generation comes from: the prior, a seed, given codes, or given noise.

All of them give noise. It samples z from the encoder at the prompt's positions, bit h being
[noise_h < q_h], and from the prior at new tokens, [noise_h < p_h].

Shapes: B rows, P prompt tokens, N new tokens, T = P + N, H latent bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.model.checks import check_codes
from ftmodel.model.mapper import pinned_noise

Shape = tuple[int, int, int]  # B, T, H
Generators = Generator | Sequence[Generator]  # one for all rows, or one for each


class LatentSource(ABC):
    """Noise for the z of all positions."""

    @abstractmethod
    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        """Noise uniform on [0, 1), of ``shape`` (B, T, H), or of one position fewer: the last new
        token is never read. ``generator`` and ``padding`` (B,) as in ``generate``.

        Raises ValueError if this source cannot give such noise.
        """

    def of_new_tokens(self, noise: Tensor) -> Tensor:
        """Noise that samples the z of new tokens, from their part (B, N, H) of ``noise``: the same,
        or −1 where a bit of given codes is set and 1 where it is not.

        Raises ValueError if the codes do not fit such tokens.
        """
        return noise


@dataclass(frozen=True)
class FromPrior(LatentSource):
    """Noise from the generator of ``generate``, so z of new tokens comes from the prior. Groups of
    ``share`` neighbouring rows have the same noise, and so under the uniform prior the same z of
    new tokens.
    """

    share: int = 1

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        rows, length, bits = shape
        if rows % self.share:
            raise ValueError(f"{rows} sequences cannot share z in groups of {self.share}")
        if not isinstance(generator, Generator):
            raise ValueError("generators of single rows draw only tokens: z needs a seed or noise")
        noise = torch.rand(rows // self.share, length, bits, generator=generator)
        return noise.repeat_interleave(self.share, dim=0)


@dataclass(frozen=True)
class Pinned(LatentSource):
    """The same noise in every row, drawn with ``seed`` and counted from each row's first token
    after its padding. Under the uniform prior all rows then have the same z of new tokens.
    """

    seed: int

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        rows, length, bits = shape
        noise = torch.rand(length, bits, generator=torch.Generator().manual_seed(self.seed))
        if padding is None:
            return noise.expand(rows, -1, -1)
        index = torch.arange(length) - padding.cpu()[:, None]  # (B, T)
        return noise[index.clamp(min=0)]


@dataclass(frozen=True)
class Codes(LatentSource):
    """Given codes of the new tokens, integers (N,) or (B, N) in 0 … 2^H − 1; N − 1 of them are
    enough. The z of the prompt comes from the encoder, with noise from the generator.
    """

    z: Tensor

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        return FromPrior().noise(shape, generator, padding)

    def of_new_tokens(self, noise: Tensor) -> Tensor:
        z, (rows, new, bits) = self.z, noise.shape
        if z.is_floating_point() or (z.dim() == 2 and z.shape[0] not in (1, rows)) or z.dim() > 2:
            raise ValueError(f"codes must be integers (N,) or ({rows}, N), not {tuple(z.shape)}")
        if z.shape[-1] < new - 1:
            raise ValueError(f"{z.shape[-1]} codes cannot pin {new} new tokens")
        check_codes(z, bits)
        return pinned_noise(z.expand(rows, -1), bits)


@dataclass(frozen=True)
class Noise(LatentSource):
    """Given noise (B, T, H) for the prompt and the new tokens. The last position may be missing,
    and padding may hold any number. Noise of −1 sets a bit and noise of 1 clears it, also at the
    prompt's positions.
    """

    values: Tensor

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        rows, length, bits = shape
        size = tuple(self.values.shape)
        if len(size) != 3 or size[::2] != (rows, bits) or size[1] < length - 1:
            raise ValueError(f"noise must be ({rows}, {length}, {bits}), not {size}")
        return self.values
