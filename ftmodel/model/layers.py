"""The parts of a Llama-style block: positions and documents, attention with its cache, SwiGLU.

Shapes: B batch, T positions, D model width, N heads, M key-value heads, E head width.
"""

from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.model.config import ModelConfig
from ftmodel.model.product import Linear


def rope_rates(config: ModelConfig, device: torch.device) -> Tensor:
    """θ_j of RoFormer (Su et al. 2021, arXiv 2104.09864), § 3.2.2, radians a position, (E / 2,).

    With a ``rope_factor`` above 1 as Llama 3.1 has them: a rotation that turns fewer than
    ``rope_low_freq`` times in ``rope_old_context`` positions is slower by the factor, one that
    turns more than ``rope_high_freq`` times is as it was, and those between are mixed.
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
    # bool (B, 1, T, S): whether a query (T) may read a key (S, cached ones included); None: there
    # are neither document boundaries nor padding
    causal: Tensor | None = None  # keys of the same document, not padding, and not later
    full: Tensor | None = None  # keys of the same document, not padding
    # (B or 1, T) as in spans.py: whose z each token reads; None: its own, or that which it is given
    span_starts: Tensor | None = None

    def at(self, t: int, keys: int) -> "Positions":
        """The t-th of these alone, which may read the first ``keys``."""
        causal = None if self.causal is None else self.causal[..., t : t + 1, :keys]
        return Positions(self.rope[t : t + 1], causal)


def within_documents(rope: Tensor, documents: Tensor) -> Positions:
    """Positions for attention within documents, which ``documents`` (B, T) numbers."""
    same = (documents[:, :, None] == documents[:, None, :]).unsqueeze(1)  # (B, 1, T, T)
    return Positions(rope, causal=same.tril(), full=same)


def after_padding(rope: Tensor, start: int, padding: Tensor) -> Positions:
    """Positions start, start + 1, … of rows with ``padding`` (B,) leading positions that no other
    position reads.

    A padding position still reads itself: a softmax over no key is NaN, and so is NaN times a
    weight of 0.
    """
    keys = torch.arange(start + len(rope), device=rope.device)
    queries = keys[start:, None]  # (T, 1)
    real = (keys >= padding[:, None]).unsqueeze(1)  # (B, 1, S)
    causal = (keys <= queries) & (real | (keys == queries))  # (B, T, S)
    full = None if start else real.expand(causal.shape).unsqueeze(1)
    return Positions(rope, causal.unsqueeze(1), full)


class LayerCache:
    """Keys and values of one block for the positions read so far, in buffers of fixed size. With
    two keys a position these lie side by side, and E is the width of both.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v (B, M, T, E); return all keys and values so far, (B, M, length, E) each."""
        if self.keys is None or self.values is None:
            b, m, _, e = k.shape
            self.both = k.new_empty(2, b, m, self.capacity, e)
            self.keys, self.values = self.both[0], self.both[1]
        end = self.length + k.shape[2]
        assert end <= self.capacity, f"cache of {self.capacity} positions asked to hold {end}"
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def append_one(self, kv: Tensor) -> tuple[Tensor, Tensor]:
        """``append`` for one position, kv (2, B, M, E), to a cache that is not empty."""
        assert self.keys is not None and self.values is not None and self.length < self.capacity
        self.both.select(3, self.length).copy_(kv)
        self.length += 1
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)

    def select(self, rows: Tensor, capacity: int) -> "LayerCache":
        """A copy of ``rows`` (R,) of this cache, repeated rows allowed, with room for ``capacity``
        positions.
        """
        copy = LayerCache(capacity)
        if self.keys is not None and self.values is not None:
            copy.append(self.keys[rows, :, : self.length], self.values[rows, :, : self.length])
        return copy

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy rows ``source`` (R,) over rows ``target`` (R,), all at once."""
        assert self.keys is not None, "an empty cache"
        self.both[:, target, :, : self.length] = self.both[:, source, :, : self.length]

    def keep(self, rows: int) -> None:
        """Keep the first rows only."""
        self.both = self.both[:, :rows]
        self.keys, self.values = self.both[0], self.both[1]


def one_by_one(x: Tensor, width: int) -> Tensor:
    """Keys or values (B, M, S, 2 E) as a cache holds them, side by side, as (B, M, 2 S, E), a view;
    E = ``width``.
    """
    return x.unflatten(-1, (-1, width)).flatten(2, 3)


def attend(queries: Tensor, keys: Tensor, values: Tensor, **settings: Any) -> Tensor:
    """PyTorch's attention. Training under autocast on a CPU computes it in float32: the backward
    pass takes five times as long in bf16 (LOG.md, 2026-11-24).
    """
    if not (torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(queries, keys, values, **settings)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(
            queries.float(), keys.float(), values.float(), **settings
        ).type_as(queries)


class Attention(nn.Module):
    """Grouped-query attention whose queries and keys-values may come from different tensors."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width = config.head_channels
        self.grouped = config.n_kv_heads != config.n_heads
        width, kv_width = (n * self.head_width for n in (config.n_heads, config.n_kv_heads))
        self.query = Linear(config.d_model, width, config.qkv_bias)
        self.key_value = Linear(config.d_model, 2 * kv_width, config.qkv_bias)
        self.output = Linear(width, config.d_model)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(self.head_width, eps=config.norm_eps) if config.qk_norm else None
            for _ in range(2)
        )

    def heads(self, x: Tensor, norm: nn.RMSNorm | None = None) -> Tensor:
        x = x.unflatten(-1, (-1, self.head_width))
        if norm is not None:  # under autocast in float32
            x = norm(x.to(norm.weight.dtype)).type_as(x)
        return x.transpose(1, 2)  # (B, N or M, T, E)

    def keys_values(self, kv: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, M, T, E) of kv (B, T, D)."""
        k, v = self.key_value(kv).chunk(2, dim=-1)
        return rotate(self.heads(k, self.key_norm), rope), self.heads(v)

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        positions: Positions,
        causal: bool,
        cache: LayerCache | None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """q (B or 1, T or 1, D) and kv (B, T, D), at the same positions, give (B, T, D). With
        ``memory`` (B, T, D) each position has a second key and value, of that.
        """
        queries = rotate(self.heads(self.query(q), self.query_norm), positions.rope)
        keys, values = self.keys_values(kv, positions.rope)
        if memory is not None:  # side by side, so that the cache goes on counting positions
            more = self.keys_values(memory, positions.rope)
            keys, values = (torch.cat(p, -1) for p in zip((keys, values), more, strict=True))
        past = 0
        if cache is not None:
            past = cache.length
            keys, values = cache.append(keys, values)
        t = queries.shape[2]
        mask = positions.causal if causal else positions.full
        if mask is None and causal and t > 1 and (past or memory is not None):
            mask = torch.ones(t, past + t, dtype=torch.bool, device=q.device).tril(past)
        if memory is not None:
            keys, values = (one_by_one(x, self.head_width) for x in (keys, values))
            mask = None if mask is None else mask.repeat_interleave(2, dim=-1)
        y = attend(
            queries.expand(keys.shape[0], -1, -1, -1),
            keys,
            values,
            attn_mask=mask,
            is_causal=causal and not past and memory is None and mask is None,
            enable_gqa=self.grouped,
        )
        return self.output(y.transpose(1, 2).flatten(2))  # (B, T, D)


class SwiGLU(nn.Module):
    """Gated feed-forward layer (Shazeer 2020, arXiv 2002.05202, eq. 6), gate and up fused."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = Linear(config.d_model, 2 * config.ffn_width)
        self.down = Linear(config.ffn_width, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """Pre-norm attention and SwiGLU. ``block(q, kv)`` normalises each input by its own pre-norm.

    The residual stream is q; kv and ``memory`` enter it only through attention. ``kv`` None stands
    for q, which is then normalised once. (Activation checkpointing copies its arguments: ``kv is
    q`` would not do.)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.ffn = SwiGLU(config)

    def forward(
        self,
        q: Tensor,
        kv: Tensor | None,
        positions: Positions,
        causal: bool = True,
        cache: LayerCache | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        queries = self.attention_norm(q)
        keys_values = queries if kv is None else self.attention_norm(kv)
        more = None if memory is None else self.attention_norm(memory)
        x = q + self.attention(queries, keys_values, positions, causal, cache, more)
        return x + self.ffn(self.ffn_norm(x))
