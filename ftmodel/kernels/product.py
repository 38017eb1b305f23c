"""Float32 matrix products by the faster of the two libraries in PyTorch's CPU wheels.

PyTorch multiplies by MKL, which uses only AVX2 on processors other than Intel's: on a Zen 5 core
95 GFLOP/s, where oneDNN's AVX-512 kernels reach 220. Results are equal up to rounding.

Shapes: … any leading dimensions, N rows in all, I inputs, O outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

# multiply-adds from which on oneDNN is used: it saves 0.2 ms there, and a new shape costs 0.5 once
MIN_MULTIPLICATIONS = 1 << 24


def slow_mkl() -> bool:
    """Whether this processor has AVX-512 and MKL does not use it."""
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_f")) and "Intel" not in known.get("cpu_name", "Intel")


ONEDNN = torch.backends.mkldnn.is_available() and slow_mkl()


def onednn_is_faster(a: Tensor) -> bool:
    """Whether oneDNN multiplies large matrices of this kind faster than what PyTorch calls."""
    return ONEDNN and a.device.type == "cpu" and a.dtype == torch.float32


def suits(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN computes a bᵀ (…, O), for a (…, I) and b (O, I), faster."""
    if not onednn_is_faster(a) or b.dtype != a.dtype or torch.is_autocast_enabled("cpu"):
        return False
    return a.numel() * len(b) >= MIN_MULTIPLICATIONS


if not hasattr(torch.ops.ftmodel, "onednn_product"):  # once per process: a file may have copies
    library = torch.library.Library("ftmodel", "DEF")
    library.define("onednn_product(Tensor a, Tensor b) -> Tensor")

    @torch.library.impl(library, "onednn_product", "CPU")
    def onednn_product(a: Tensor, b: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")

    @torch.library.register_fake("ftmodel::onednn_product")  # type: ignore[untyped-decorator]
    def _(a: Tensor, b: Tensor) -> Tensor:
        return a.new_empty(*a.shape[:-1], len(b))


def product(a: Tensor, b: Tensor, buffer: Tensor | None = None) -> Tensor:
    """a bᵀ (…, O) for a (…, I), b (O, I); no gradient; ``buffer`` (N, O) may hold the result."""
    if suits(a, b):
        return torch.ops.ftmodel.onednn_product(a, b)
    return F.linear(a, b) if buffer is None else torch.mm(a, b.t(), out=buffer)


def product_as(dtype: torch.dtype, a: Tensor, b: Tensor) -> Tensor:
    """``product`` of two matrices, in ``dtype``. On a GPU a float32 result of narrower factors is
    not rounded to their type first.
    """
    if a.is_cuda and a.dtype.itemsize < 4 and dtype == torch.float32:
        return torch.mm(a, b.t(), out_dtype=dtype)
    return product(a, b).to(dtype)


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """gradᵀ x (O, I) for grad (N, O) and x (N, I)."""
    if not suits(grad, x.t()):
        return grad.t() @ x
    if grad.shape[1] < x.shape[1]:  # the first factor is copied
        return product(grad.t(), x.t())
    return product(x.t(), grad.t()).t()


class Product(torch.autograd.Function):
    """``product`` with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = product(grad, weight.t())
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(grad.flatten(0, -2), x.flatten(0, -2))
        return grad_x, grad_weight


class Linear(nn.Linear):
    """nn.Linear by the faster library."""

    def forward(self, x: Tensor) -> Tensor:
        if suits(x, self.weight):
            y = Product.apply(x, self.weight)
            return y if self.bias is None else y + self.bias
        return F.linear(x, self.weight, self.bias)
