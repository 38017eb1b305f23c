"""Where the tokens of a forward pass stand: RoPE, documents, padding, and the latent codes they
share.

Shapes: B batch, T positions, S keys (cached ones included), N heads, E head width.
"""

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from ftmodel.config import LatentDesign, ModelConfig
from ftmodel.kernels.attention import document_blocks, flex_works

Mask = Tensor | BlockMask | None


def rope_rates(config: ModelConfig, device: torch.device) -> Tensor:
    """θ_j of RoFormer (Su et al. 2021, arXiv 2104.09864), § 3.2.2, radians per position, (E / 2,).

    With a ``rope_factor`` above 1 as in Llama 3.1: a rotation that turns fewer than
    ``rope_low_freq`` times in ``rope_old_context`` positions is slowed down by the factor, one that
    turns more than ``rope_high_freq`` times stays as it was, and those between are interpolated.
    """
    width = config.head_channels
    channels = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    rates = config.rope_theta ** (-channels / width)
    if config.rope_factor == 1:
        return rates
    turns = config.rope_old_context * rates / (2 * pi)
    low, high = config.rope_low_freq, config.rope_high_freq
    high_share = ((turns - low) / (high - low)).clamp(0, 1)
    return rates * (high_share + (1 - high_share) / config.rope_factor)


def rope_table(config: ModelConfig, start: int, length: int, device: torch.device) -> Tensor:
    """Rotations e^{i t θ_j}, complex64 (length, E / 2), at positions t = start, start + 1, … They
    turn neighbouring channels together.
    """
    positions = torch.arange(start, start + length, device=device, dtype=torch.float32)
    angles = torch.outer(positions, rope_rates(config, device))  # (T, E / 2)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Apply RoPE to x (B, N, T or 1, E); a single row is broadcast to all T positions."""
    if torch.compiler.is_compiling():  # inductor does not compile complex products
        cos, sin = torch.view_as_real(rope).unbind(-1)  # (T, E / 2)
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (B, N, T, E / 2)
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).type_as(x)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))  # (B, N, T, E / 2)
    return torch.view_as_real(pairs * rope).flatten(-2).type_as(x)


@dataclass
class Positions:
    """Positions and attention masks of a forward pass, the same for all blocks."""

    rope: Tensor  # complex (T, E / 2)
    # bool (B, 1, T, S): whether a query (T) may read a key (S), or FlexAttention's mask (T, T) of
    # documents on a GPU; None: there are neither documents nor padding
    causal: Mask = None  # keys of the same document, not padding, and not later
    full: Mask = None  # keys of the same document, not padding
    documents: Tensor | None = None  # integers (B, T); padding is a document of its own
    padding: Tensor | None = None  # (B,)
    # (B or 1, T) as in sharing.py: whose code each token uses; None: its own, or a given one
    span_starts: Tensor | None = None
    prefix: int = 0  # how many of the T positions a random prefix takes

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        tokens: Tensor,
        start: int = 0,
        documents: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> "Positions":
        """Positions start, start + 1, … of tokens (B, T).

        With ``documents`` (B, T), integers that number the documents of a row, each document is
        read as if it stood alone. With ``padding`` (B,), that many leading positions of a row,
        counted from position 0, hold no token: no other position reads them, and the output there
        is meaningless. Numbering neither restarts at a document nor skips padding, as RoPE is
        relative. Masks cost time: pass None for rows without padding. A random prefix, between
        padding and tokens, has n more positions, counted as if they were tokens.

        Raises ValueError if both are given, if documents follow a cache, whose rows hold one
        document each, if a shape does not fit ``tokens``, or if a row without padding is longer
        than the context.
        """
        longest = config.context + (config.random_prefix if start else 0)
        if padding is None and start + tokens.shape[1] > longest:
            raise ValueError(
                f"tokens: a row of {start + tokens.shape[1]} exceeds the context of "
                f"{config.context} that the model is made for"
            )
        if documents is not None and padding is not None:
            raise ValueError("rows of several documents are packed, not padded")
        if documents is not None and start:
            raise ValueError("a cache holds one document per row, not several")
        prefix, device = 0 if start else config.random_prefix, tokens.device
        if documents is not None and config.random_prefix:
            raise ValueError("a random prefix stands before a row of one document, not of several")
        length = prefix + tokens.shape[1]
        rope = rope_table(config, start, length, device)
        at = cls(rope, documents=documents, padding=padding, prefix=prefix)
        if documents is not None:
            check_like("documents", documents, tokens.shape, tokens)
            at.read_within(documents, config)
        if padding is not None:
            check_like("padding", padding, tokens.shape[:1], tokens)
            at.read_after(padding, start)
        if config.latent_bits and not start:
            at.span_starts = span_starts(config.latent, length, device, documents, padding)
        return at

    def read_within(self, documents: Tensor, config: ModelConfig) -> None:
        if flex_works(documents.device, config.head_channels):
            self.full = document_blocks(documents, causal=False)
            self.causal = document_blocks(documents, causal=True)
        else:
            self.full, self.causal = self.dense(causal=False), self.dense(causal=True)

    def dense(self, causal: bool, first: int = 0, end: int | None = None) -> Tensor:
        """Dense mask (B, 1, queries, T) of documents, for the queries first … end − 1."""
        assert self.documents is not None
        queries = self.documents[:, first:end, None]
        same = (queries == self.documents[:, None, :]).unsqueeze(1)
        return same.tril(first) if causal else same

    def read_after(self, padding: Tensor, start: int) -> None:
        """Mask padding, which still reads itself: a softmax over no key is NaN, times 0 as well."""
        keys = torch.arange(start + len(self.rope), device=self.rope.device)  # (S,)
        queries = keys[start:, None]  # (T, 1)
        real = (keys >= padding[:, None]).unsqueeze(1)  # (B, 1, S)
        causal = (keys <= queries) & (real | (keys == queries))  # (B, T, S)
        self.causal = causal.unsqueeze(1)
        self.full = None if start else real.expand(causal.shape).unsqueeze(1)
        self.documents = real[:, 0, start:].long()

    def one(self, t: int, keys: int) -> "Positions":
        """Position t alone, which may read the first ``keys`` positions."""
        causal = self.causal
        if isinstance(causal, BlockMask):
            causal = self.dense(causal=True, first=t, end=t + 1)
        elif causal is not None:
            causal = causal[..., t : t + 1, :]
        return Positions(self.rope[t : t + 1], None if causal is None else causal[..., :keys])


def span_starts(
    design: LatentDesign,
    length: int,
    device: torch.device,
    documents: Tensor | None = None,
    padding: Tensor | None = None,
) -> Tensor | None:
    """``starts`` for T = ``length`` tokens. Spans are counted from the start of a row, or of each
    of its ``documents`` (B, T), or from the end of its ``padding`` (B,).
    """
    if not design.shared_codes:
        return None
    index = torch.arange(length, device=device)[None]
    begin = torch.zeros_like(index)
    if documents is not None:
        begin = document_starts(documents)
    elif padding is not None:
        begin = torch.minimum(index, padding[:, None])
    return begin if design.every is None else index - (index - begin) % design.every


def document_starts(documents: Tensor) -> Tensor:
    """Index (B, T) of the first token of each token's document, given ``documents`` (B, T)."""
    new = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0))
    return (torch.arange(documents.shape[1], device=documents.device) * new).cummax(1).values


def check_like(name: str, x: Tensor, shape: tuple[int, ...], other: Tensor) -> None:
    """Raise ValueError unless x has this shape and is on the device of ``other``."""
    if x.shape != shape:
        raise ValueError(f"{name}: its shape is {tuple(x.shape)}, not {tuple(shape)}")
    if x.device != other.device:
        raise ValueError(f"{name}: it is on {x.device}, the tokens are on {other.device}")
