"""The binary mapper with the post-sampler's table: logits of bits in, embedding of a code out.

The paper samples H bits (§ 3.4, eq. 6), writes the code as a one-hot vector of length 2^H (eq. 7),
and multiplies it by a (2^H, D) table, with a straight-through gradient over *all* codes (eq. 8).
Here the same value is a row look-up, and the same gradient never needs a (tokens, 2^H) tensor.

Shapes: … any leading dimensions, N tokens, H bits, D width.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ftmodel.kernels.product import product_as

# Elements of the (N, 2^H) product that the backward pass holds at a time, the fastest sizes
# measured: CPU_BLOCK stays in cache; a GPU prefers few large kernels, and GPU_BLOCK takes 256 MB.
CPU_BLOCK, GPU_BLOCK = 1 << 21, 1 << 26


def bit_table(bits: int, device: torch.device | None = None) -> Tensor:
    """U (2^bits, bits) of 0. and 1.: U[d, h] is bit h of code d, bit 0 the least significant."""
    codes = torch.arange(1 << bits, device=device)
    return (codes[:, None] >> torch.arange(bits, device=device) & 1).float()


def pack_bits(bits: Tensor) -> Tensor:
    """Codes d = Σ_h b_h 2^h (…) from bits (…, H): where the one-hot vector of eq. 7 is 1."""
    weights = 1 << torch.arange(bits.shape[-1], device=bits.device)
    return (bits.long() * weights).sum(-1)


def signs(codes: Tensor, bits: int) -> Tensor:
    """Bits of codes (…) as integers ±1, (…, H): 1 for a set bit, −1 for a clear one."""
    return (codes[..., None] >> torch.arange(bits, device=codes.device) & 1) * 2 - 1


def code_probabilities(p: Tensor) -> Tensor:
    """G (…, 2^H) of eq. 8: each code's probability when bit h is 1 with probability p[…, h]."""
    g = p.new_ones(*p.shape[:-1], 1)
    for h in range(p.shape[-1]):
        ph = p[..., h, None]
        g = torch.cat((g * (1 - ph), g * ph), dim=-1)
    return g


def sums_by_codes(
    rho: Tensor, g_low: Tensor, g_high: Tensor, table: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Two sums with g = W ρ: Σ g_d G_high over the values of d's high bits, (N, 2^low), and
    Σ g_d G_low over the values of d's low bits, (N, 2^high).

    g is computed and used in blocks of rows of W by tokens; over all blocks W is read once. Memory:
    one block.
    """
    over_high, over_low = torch.zeros_like(g_low), torch.empty_like(g_high)
    low, most = g_low.shape[1], g_high.shape[1]
    block = CPU_BLOCK if rho.device.type == "cpu" else GPU_BLOCK
    codes = block // min(len(rho), 1024)
    high = min(max(1, codes // low), most)  # values of the high half in a block
    rows = max(1, block // (high * low))  # tokens in a block
    rho = rho.to(dtype)
    for first in range(0, most, high):
        h = slice(first, first + high)
        weight = table[h.start * low : h.stop * low].to(dtype)
        for start in range(0, len(rho), rows):
            n = slice(start, start + rows)
            g = product_as(g_low.dtype, rho[n], weight).unflatten(-1, (-1, low))  # (n, high, low)
            over_low[n, h] = (g @ g_low[n, :, None]).squeeze(-1)
            over_high[n] += (g_high[n, None, h] @ g).squeeze(1)
    return over_high, over_low


def logit_gradient(rho: Tensor, p: Tensor, table: Tensor, dtype: torch.dtype) -> Tensor:
    """∂loss/∂o_h = Σ_d g_d G_d (U_h(d) − p_h) with g = W ρ; (N, H).

    The code's bits split into a low and a high half, so that G is an outer product of two vectors
    of length 2^{H/2} and the sum over d becomes two small contractions.

    Args:
        rho: ρ = ∂loss/∂r (N, D).
        p: probabilities of the bits (N, H).
        table: W (2^H, D).
        dtype: type of the factors in W ρ. All else has p's precision, because the gradient of a
            nearly certain bit is a small difference of large sums.
    """
    bits, low = p.shape[1], p.shape[1] // 2
    g_low, g_high = code_probabilities(p[:, :low]), code_probabilities(p[:, low:])
    over_high, over_low = sums_by_codes(rho, g_low, g_high, table, dtype)
    over_low *= g_high
    over_high *= g_low
    u_low, u_high = (bit_table(k, p.device).to(p.dtype) for k in (low, bits - low))
    weighted_bits = torch.cat((over_high @ u_low, over_low @ u_high), dim=-1)
    return weighted_bits - p * over_low.sum(1, keepdim=True)


class BinaryMapper(torch.autograd.Function):
    """Sample codes and look up their rows; see :func:`binary_mapper`."""

    @staticmethod
    def forward(ctx: Any, o: Tensor, noise: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(o.float() if o.dtype.itemsize < 4 else o)  # P(b_h = 1), eq. 6
        codes = pack_bits(noise < p)  # eq. 7
        ctx.save_for_backward(p, codes, table)
        ctx.o_dtype = o.dtype
        ctx.product_dtype = (
            torch.get_autocast_dtype(o.device.type)
            if torch.is_autocast_enabled(o.device.type)
            else table.dtype
        )
        ctx.mark_non_differentiable(codes)
        return table[codes], codes

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, rho: Tensor, _codes: Tensor
    ) -> tuple[Tensor | None, None, Tensor | None]:
        """ρ = ∂loss/∂r in, ∂loss/∂o and ∂loss/∂W out."""
        p, codes, table = ctx.saved_tensors
        rho = rho.reshape(-1, rho.shape[-1])  # (N, D)
        grad_o = grad_table = None
        if ctx.needs_input_grad[2]:
            # Y + G − detach(G), § 3.4, has the value Y: only sampled rows get a gradient
            grad_table = torch.zeros_like(table).index_add_(0, codes.flatten(), rho.to(table.dtype))
        if ctx.needs_input_grad[0]:
            with torch.autocast(p.device.type, enabled=False):
                grad_o = logit_gradient(rho, p.reshape(-1, p.shape[-1]), table, ctx.product_dtype)
            grad_o = grad_o.view_as(p).to(ctx.o_dtype)
        return grad_o, None, grad_table


def binary_mapper(o: Tensor, noise: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Sample bits b_h = [noise_h < sigmoid(o_h)]; return r = table[code] and the codes.

    Args:
        o: logits of the bits (…, H).
        noise: uniform on [0, 1), (…, H); the only source of randomness.
        table: the post-sampler's embedding W, (2^H, D); row d belongs to d = Σ_h b_h 2^h.

    Returns:
        r (…, D), differentiable in ``o`` (straight-through over all codes, eq. 8 of the paper) and
        in ``table``; codes (…), integers in 0 … 2^H − 1.
    """
    assert prod(o.shape) > 0
    r, codes = BinaryMapper.apply(o, noise, table)
    return r, codes


def check_codes(codes: Tensor, bits: int) -> None:
    """Raise ValueError unless all ``codes`` are in 0 … 2^bits − 1. 64 bits fill any integer."""
    if bits < 64 and (codes >> bits).any():
        raise ValueError(f"codes: one lies outside 0 … {(1 << bits) - 1}")
