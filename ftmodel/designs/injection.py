"""Where the embedding r of z enters the decoder.

Shapes: B batch, T positions, S keys, D model width, M key-value heads, E head width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from ftmodel.cache import LayerCache
from ftmodel.config import Inject, ModelConfig
from ftmodel.layers import Attention, Block
from ftmodel.positions import Positions


class BlockInput(NamedTuple):
    """What a block reads."""

    stream: Tensor  # the residual stream (B, T, D)
    kv: Tensor | None = None  # what keys and values are computed from; None: the stream


class KeyValueInjection:
    """Keys and values of the first block that reads z come from x + r (the paper)."""

    def __init__(self, config: ModelConfig) -> None:
        self.config, self.first = config, config.lower_blocks

    def block(self, n: int) -> nn.Module:
        """A new block n, counted from 0."""
        return Block(self.config)

    def __call__(self, n: int, x: Tensor, r: Tensor) -> BlockInput:
        """Choose what block n reads, given x and r (B, T, D)."""
        return BlockInput(x, x + r if n == self.first else None)


class AllKeyValues(KeyValueInjection):
    """Keys and values of that block and of all later ones come from x + r (Fang et al. 2021)."""

    def __call__(self, n: int, x: Tensor, r: Tensor) -> BlockInput:
        return BlockInput(x, x + r)


class StreamInjection(KeyValueInjection):
    """r is added to the residual stream."""

    def __call__(self, n: int, x: Tensor, r: Tensor) -> BlockInput:
        return BlockInput(x + r if n == self.first else x)


class MemoryInjection(KeyValueInjection):
    """r alone gives a second key and value at each position of the first block that reads z, as in
    the scheme "memory" of OPTIMUS (Li et al. 2020).
    """

    def block(self, n: int) -> nn.Module:
        return Block(self.config, MemoryAttention if n == self.first else Attention)

    def __call__(self, n: int, x: Tensor, r: Tensor) -> BlockInput:
        return BlockInput(x, r if n == self.first else None)


class MemoryAttention(Attention):
    """Attention in which ``kv`` (B, T, D) gives each position a second key and value, beside q's.

    The cache holds both side by side, (B, M, S, 2 E), so it still counts positions.
    """

    def forward(
        self, q: Tensor, kv: Tensor, at: Positions, causal: bool, cache: LayerCache | None
    ) -> Tensor:
        if kv is q:  # the decoder without z
            return super().forward(q, kv, at, causal, cache)
        pairs = zip(self.keys_values(q, at), self.keys_values(kv, at), strict=True)
        keys, values = (torch.cat(pair, -1) for pair in pairs)
        past = 0
        if cache is not None:
            past = cache.length
            keys, values = cache.append(keys, values)
        queries = self.queries(q, at)
        mask = at.causal if causal else at.full
        if isinstance(mask, BlockMask):  # which has one key per position
            mask = at.dense(causal)
        if mask is None and causal and queries.shape[2] > 1:
            mask = self.causal_mask(queries, past)
        mask = None if mask is None else mask.repeat_interleave(2, dim=-1)
        keys, values = (x.unflatten(-1, (2, -1)).flatten(2, 3) for x in (keys, values))
        return self.mix(queries, keys, values, mask, causal=False)


INJECTIONS: dict[Inject, type[KeyValueInjection]] = {
    Inject.kv: KeyValueInjection,
    Inject.kv_all: AllKeyValues,
    Inject.residual: StreamInjection,
    Inject.embedding: StreamInjection,
    Inject.memory: MemoryInjection,
}
