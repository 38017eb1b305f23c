"""The parts of a Llama-style block: attention, SwiGLU, and both with their pre-norms.

Shapes: B batch, T positions, S keys, D model width, N heads, M key-value heads, E head width.
"""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from ftmodel.cache import LayerCache
from ftmodel.config import ModelConfig
from ftmodel.kernels.attention import attend, flex_attend
from ftmodel.kernels.product import Linear
from ftmodel.positions import Mask, Positions, rotate


class Attention(nn.Module):
    """Grouped-query attention whose queries and keys-values may come from different tensors."""

    attend = staticmethod(F.scaled_dot_product_attention)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width = config.head_channels
        self.grouped = config.n_kv_heads != config.n_heads
        width, kv_width = (n * self.head_width for n in (config.n_heads, config.n_kv_heads))
        self.query = nn.Linear(config.d_model, width, config.qkv_bias)
        self.key_value = nn.Linear(config.d_model, 2 * kv_width, config.qkv_bias)
        self.output = nn.Linear(width, config.d_model, bias=False)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(self.head_width, eps=config.norm_eps) if config.qk_norm else None
            for _ in range(2)
        )

    def heads(self, x: Tensor, norm: nn.RMSNorm | None = None) -> Tensor:
        x = x.unflatten(-1, (-1, self.head_width))
        if norm is not None:  # under autocast in float32
            x = norm(x.to(norm.weight.dtype)).type_as(x)
        return x.transpose(1, 2)  # (B, N or M, T, E)

    def queries(self, q: Tensor, at: Positions) -> Tensor:
        """Queries (B, N, T, E) from q (B or 1, T or 1, D)."""
        return rotate(self.heads(self.query(q), self.query_norm), at.rope)

    def keys_values(self, kv: Tensor, at: Positions) -> tuple[Tensor, Tensor]:
        """Keys and values (B, M, T, E) from kv (B, T, D)."""
        k, v = self.key_value(kv).chunk(2, dim=-1)
        return rotate(self.heads(k, self.key_norm), at.rope), self.heads(v)

    def forward(
        self, q: Tensor, kv: Tensor, at: Positions, causal: bool, cache: LayerCache | None
    ) -> Tensor:
        """Attend from q (B or 1, T or 1, D) to kv (B, T, D), at the same positions: (B, T, D)."""
        queries, (keys, values) = self.queries(q, at), self.keys_values(kv, at)
        past = 0
        if cache is not None:
            past = cache.length
            keys, values = cache.append(keys, values)
        mask = at.causal if causal else at.full
        if mask is None and causal and past and queries.shape[2] > 1:
            mask = self.causal_mask(queries, past)
        return self.mix(queries, keys, values, mask, causal and not past and mask is None)

    @staticmethod
    def causal_mask(queries: Tensor, past: int) -> Tensor:
        """Causal mask (T, S) for queries (B, N, T, E) after ``past`` positions."""
        t = queries.shape[2]
        return torch.ones(t, past + t, dtype=torch.bool, device=queries.device).tril(past)

    def mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, causal: bool
    ) -> Tensor:
        """Attention of (B or 1, N, T, E) to (B, M, S, E), then the output projection: (B, T, D)."""
        queries = queries.expand(keys.shape[0], -1, -1, -1)
        if isinstance(mask, BlockMask):
            y = flex_attend(queries, keys, values, mask, self.grouped)
        else:
            y = self.attend(
                queries, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=self.grouped
            )
        return self.output(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """Gated feed-forward layer (Shazeer 2020, arXiv 2002.05202, eq. 6), gate and up fused."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.d_model, 2 * config.ffn_width, bias=False)
        self.down = nn.Linear(config.ffn_width, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """Pre-norm attention and SwiGLU. ``block(q, kv)`` applies the same pre-norm to q and to kv.

    The residual stream is q; kv enters it only through attention. ``kv`` None means that q serves
    as kv, and is normalised once. (A test ``kv is q`` would fail here: activation checkpointing
    copies arguments.)
    """

    def __init__(self, config: ModelConfig, attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.attention = attention(config)
        self.ffn_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.ffn = SwiGLU(config)

    def forward(
        self,
        q: Tensor,
        kv: Tensor | None,
        at: Positions,
        causal: bool = True,
        cache: LayerCache | None = None,
    ) -> Tensor:
        queries = self.attention_norm(q)
        keys_values = queries if kv is None else self.attention_norm(kv)
        x = q + self.attention(queries, keys_values, at, causal, cache)
        return x + self.ffn(self.ffn_norm(x))


Model = TypeVar("Model", bound=nn.Module)


def use_kernels(model: Model) -> Model:
    """Return the same model, with linear layers and attention computed by the fastest kernels known
    for the processor; results are equal up to rounding.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
        if isinstance(module, Attention):
            module.attend = attend  # type: ignore[assignment]
    return model
