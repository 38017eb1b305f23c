"""Attention within documents by FlexAttention (Dong et al. 2024, arXiv 2412.05496), on a GPU.

Scores are not stored. The mask stores only which blocks of positions to read, (T / BLOCK)². Shapes:
B batch, T positions, N heads, M key-value heads, E head width.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128  # queries and keys of a block; FlexAttention skips blocks that need no score


def listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Number of True blocks in each row, and indices of a row's blocks, the True ones first."""
    first = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), first.int()


def document_blocks(documents: Tensor, causal: bool) -> BlockMask:
    """Let a query read the keys of its own document, as ``documents`` (B, T) number them; if
    ``causal``, no later ones.

    A block is skipped, or read without asking ``may_read``, by its smallest and largest number.
    ``create_block_mask`` would find the same blocks, but makes T² elements unless it is compiled.
    """
    length, last = documents.shape[1], documents[:, -1:]

    def may_read(b: Tensor, _: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = documents[b, q] == documents[b, k]
        return same & (q >= k) if causal else same

    rest = (last + 1).expand(-1, -length % BLOCK)  # a block with positions past T is never whole
    blocks = torch.cat((documents, rest), 1).unflatten(1, (-1, BLOCK))
    low, high = blocks.amin(-1), blocks.amax(-1)  # (B, T / BLOCK)
    queries, keys = (..., slice(None), None), (..., None, slice(None))
    some = (low[queries] <= high[keys]) & (low[keys] <= high[queries])
    whole = (low == high)[queries] & (low == high)[keys] & some
    if causal:
        some, whole = some.tril(), whole.tril(-1)
    partial, whole = (some & ~whole).unsqueeze(1), whole.unsqueeze(1)
    lengths = length, length
    return BlockMask.from_kv_blocks(*listed(partial), *listed(whole), BLOCK, may_read, lengths)


@cache
def compiled() -> Any:
    return torch.compile(flex_attention)


def flex_attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: BlockMask, grouped: bool
) -> Tensor:
    """Attention of (B, N, T, E) to (B, M, T, E). Uncompiled code would store all scores, so on a
    GPU it is compiled: with the block around it, or else by itself.
    """
    alone = queries.is_cuda and not torch.compiler.is_compiling()
    attention: Any = compiled() if alone else flex_attention
    return attention(queries, keys, values, block_mask=mask, enable_gqa=grouped)


@cache
def flex_works(device: torch.device, width: int) -> bool:
    """Whether FlexAttention can be compiled for heads of ``width`` channels: it is tried once, on a
    GPU. If it fails there, a warning says why.
    """
    if device.type != "cuda":
        return False

    def trial(x: Tensor, mask: BlockMask) -> Tensor:
        return flex_attention(x, x, x, block_mask=mask)

    try:
        with torch.inference_mode(False), torch.enable_grad():
            x = torch.zeros(1, 1, BLOCK, width, device=device, requires_grad=True)
            documents = torch.zeros(1, BLOCK, dtype=torch.long, device=device)
            run = torch.compile(trial, fullgraph=True)  # raises even if dynamo suppresses errors
            run(x, document_blocks(documents, True)).sum().backward()
    except Exception as error:  # from the compiler, Triton or the driver
        reason = next(iter(str(error).splitlines()), repr(error))
        warnings.warn(f"document masks grow as T²: FlexAttention fails ({reason})", stacklevel=2)
        return False
    return True


def attend(queries: Tensor, keys: Tensor, values: Tensor, **settings: Any) -> Tensor:
    """PyTorch's attention, in float32 when training under autocast on a CPU, where bf16 is five
    times slower backwards.
    """
    if not (torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(queries, keys, values, **settings)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(
            queries.float(), keys.float(), values.float(), **settings
        ).type_as(queries)
