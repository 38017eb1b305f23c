"""The noise that models read: who reads it, and how the z of positions are found from it: drawn,
given, or kept from the token before.

Shapes: B rows, T positions, H latent bits, or n tokens of a random prefix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class NoiseSource(Protocol):
    """The part of a model by which its tokens read random numbers: the latent, or what a baseline
    has in its place. ``FreeTransformer.noise_source`` is the one that a model has.
    """

    width: int  # random numbers per token, H or n
    drawn_once: bool  # only the numbers of a row's first token count: a row holds one document
    purpose: str  # in an error: what the noise is for,
    reader: str  # and what has to begin at a row's first token


@dataclass(frozen=True)
class Draws:
    """What decides the z of each position; of one position per row without the dimension T."""

    noise: Tensor  # (B, T, H), uniform on [0, 1): bit h is [noise_h < P(bit h = 1)]
    codes: Tensor | None = None  # (B, T), integers: z where it is given
    given: Tensor | None = None  # (B, T), whether z is the code above; None: wherever codes are
    # (B or 1, T), whether a token keeps the z of the token before, where several share one
    keep: Tensor | None = None

    def apply(self, change: Callable[[Tensor], Tensor]) -> "Draws":
        """Change all tensors alike, in their dimensions B and T."""
        codes, given, keep = (
            None if part is None else change(part) for part in (self.codes, self.given, self.keep)
        )
        return Draws(change(self.noise), codes, given, keep)

    def __getitem__(self, index: Any) -> "Draws":
        return self.apply(lambda tensor: tensor[index])

    def choose(self, drawn: Tensor, last: Tensor | None = None) -> Tensor:
        """z (B, T), given the codes (B, T) that the noise draws. ``last`` (B,) is the z before the
        first position, for one that keeps it.
        """
        z = drawn
        if self.codes is not None:
            z = self.codes if self.given is None else torch.where(self.given, self.codes, drawn)
        if self.keep is None:
            return z
        if z.dim() == 1:
            return z if last is None else torch.where(self.keep, last, z)
        # the z of the last position that does not keep one, counted from the row's beginning
        index = torch.arange(z.shape[1], device=z.device) * ~self.keep
        kept = z.gather(1, index.cummax(1).values.expand_as(z))
        if last is None:
            return kept
        return torch.where(self.keep.cumprod(1).bool(), last[:, None], kept)


def check_uniform(noise: Tensor, name: str = "noise") -> None:
    """Raise ValueError unless all of ``noise`` lies on [0, 1): ``torch.randn``'s would set 70 % of
    the bits of z.
    """
    low, high = noise.aminmax()
    if not (low >= 0 and high < 1):  # so written, NaN is refused, too
        raise ValueError(
            f"{name}: from {low:.3g} to {high:.3g}, not uniform on [0, 1) like torch.rand's"
        )


def readable(noise: Tensor) -> bool:
    """Whether the numbers in ``noise`` can be read here: not in compiled code, in a CUDA graph, or
    in a fake tensor, which has none.
    """
    if torch.compiler.is_compiling() or not noise.numel() or type(noise) is not Tensor:
        return False
    return noise.is_cpu or (noise.is_cuda and not torch.cuda.is_current_stream_capturing())
