"""Cross-entropy of a linear read-out, without storing the logits of all tokens.

The forward pass computes the gradient of each chunk of tokens together with its logits, which are
then no longer needed. F.linear_cross_entropy can do the same, but ignores autocast: its products
are float32, or its loss bf16.

Shapes: N tokens, D width, V vocabulary.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ftmodel.kernels.product import product, suits, weight_gradient

CHUNK_ELEMENTS = 1 << 22  # logits in a chunk
LEAST_ROWS = 512  # tokens in a chunk: every chunk adds to the whole gradient (V, D)


def chunk_rows(vocabulary: int, device: str) -> int:
    """Tokens in a chunk; more on a GPU, which computes fast relative to its memory bandwidth."""
    return max(LEAST_ROWS if device == "cpu" else 4 * LEAST_ROWS, CHUNK_ELEMENTS // vocabulary)


def of_logits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy summed over n tokens, a float32 scalar, and its gradient with respect to
    ``logits`` (n, V), softmax − one-hot, in their type; ``targets`` are (n, 1).
    """
    log_p = logits.float().log_softmax(1)
    one_hot = torch.arange(logits.shape[1], device=logits.device) == targets
    return -log_p.gather(1, targets).sum(), (log_p.exp() - one_hot.float()).to(logits.dtype)


@cache
def fused() -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """``of_logits`` compiled for a GPU; if that fails, a warning and ``of_logits`` itself."""
    try:
        compiled = torch.compile(of_logits, dynamic=False)
        compiled(torch.zeros(2, 2, device="cuda"), torch.zeros(2, 1, device="cuda").long())
    except Exception as error:  # from the compiler, Triton or the driver
        reason = next(iter(str(error).splitlines()), repr(error))
        warnings.warn(f"the loss is slower, as it cannot be compiled ({reason})", stacklevel=2)
        return of_logits
    return compiled


class LinearCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy; see :func:`linear_cross_entropy`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        n, rows = len(targets), chunk_rows(len(weight), device)
        with torch.autocast(device, enabled=False):
            w = weight.to(dtype)
            grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
            loss = hidden.new_zeros((), dtype=torch.promote_types(dtype, torch.float32))
            size = (min(rows, n), len(weight))
            by_onednn = suits(hidden[:rows], w)  # which allocates its results
            logits_buffer = None if by_onednn else hidden.new_empty(size, dtype=dtype)
            fuse = device == "cuda" and dtype != loss.dtype
            p_buffer = None if fuse else hidden.new_empty(size, dtype=loss.dtype)
            chunks = (hidden.split(rows), targets.split(rows), grad_hidden.split(rows))
            for x, y, grad_x in zip(*chunks, strict=True):
                x, y = x.to(dtype), y[:, None]
                logits = product(x, w, None if logits_buffer is None else logits_buffer[: len(x)])
                if p_buffer is None:
                    of_chunk, g = fused()(logits, y)
                    loss += of_chunk
                else:
                    p = torch.log_softmax(logits, 1, dtype=loss.dtype, out=p_buffer[: len(x)])
                    loss -= p.gather(1, y).sum()
                    p.exp_().scatter_add_(1, y, p.new_full(y.shape, -1.0))  # softmax − one-hot
                    g = logits.copy_(p) if dtype != p.dtype else p
                del logits  # before the gradients are allocated
                if dtype == grad_x.dtype == grad_weight.dtype and not by_onednn:
                    torch.mm(g, w, out=grad_x)
                    grad_weight.addmm_(g.T, x)
                else:
                    grad_x.copy_(product(g, w.T))
                    grad_weight += weight_gradient(g, x)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.n = n
        return loss / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grad / ctx.n
        return grad_hidden.mul_(scale), grad_weight.mul_(scale), None  # in place: once only


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean over tokens of the cross-entropy of logits ``hidden @ weight.T``, nats, in float32.

    Args:
        hidden: (N, D). Products have its type, or autocast's; softmax and loss are float32.
        weight: the read-out's, (V, D).
        targets: (N,), integers in 0 … V − 1.

    Can be differentiated once: a second backward pass through one result raises RuntimeError.
    """
    if torch.is_grad_enabled() and hidden.requires_grad:
        return LinearCrossEntropy.apply(hidden, weight, targets)
    return F.linear_cross_entropy(hidden, weight, targets)
