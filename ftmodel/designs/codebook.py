"""How z becomes r, and how the gradient of r reaches the logits of the bits of z.

Shapes: … any leading dimensions, H bits, D width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ftmodel.designs.design import Gradient, LatentDesign, Map
from ftmodel.designs.parts import Codebook
from ftmodel.model.mapper import binary_mapper, check_shapes, pack_bits, signs


class TableCodebook:
    """r is row z of a table W (2^H, D), with a gradient over all codes (the paper)."""

    def sample(self, o: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return binary_mapper(o, noise, weight)

    def embed(self, z: Tensor, weight: Tensor) -> Tensor:
        return weight[z]

    def rms(self, weight: Tensor) -> Tensor:
        return weight.square().mean().sqrt()


class SampledTable(TableCodebook):
    """The same table with a gradient of the sampled code alone."""

    def __init__(self, gradient: Gradient) -> None:
        self.gradient = gradient

    def sample(self, o: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return sampled_mapper(o, noise, weight, self.gradient)


class LinearCodebook:
    """r is Σ_h ± w_h, row h of W (H, D) with the sign of bit h."""

    def __init__(self, gradient: Gradient) -> None:
        self.gradient = gradient

    def sample(self, o: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return linear_mapper(o, noise, weight, self.gradient)

    def embed(self, z: Tensor, weight: Tensor) -> Tensor:
        return embedding(z, weight, linear=True)

    def rms(self, weight: Tensor) -> Tensor:
        return weight.square().sum(0).mean().sqrt()  # signs of bits are independent


def codebook(design: LatentDesign) -> Codebook:
    if design.map == Map.linear:
        return LinearCodebook(design.gradient)
    if design.gradient == Gradient.all_codes:
        return TableCodebook()
    return SampledTable(design.gradient)


class Mapper(torch.autograd.Function):
    """r of a sampled code, with the gradients of :func:`linear_mapper` and
    :func:`sampled_mapper`.
    """

    @staticmethod
    def forward(
        ctx: Any, o: Tensor, noise: Tensor, weight: Tensor, linear: bool, gradient: Gradient
    ) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(o.float() if o.dtype.itemsize < 4 else o)
        bits = noise < p
        codes = pack_bits(bits)
        ctx.save_for_backward(p, codes, weight)
        ctx.o_dtype, ctx.linear, ctx.gradient = o.dtype, linear, gradient
        ctx.mark_non_differentiable(codes)
        with torch.autocast(o.device.type, enabled=False):
            return embedding(codes, weight, linear), codes

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, rho: Tensor, _codes: Tensor
    ) -> tuple[Tensor | None, None, Tensor | None, None, None]:
        """ρ = ∂loss/∂r in, ∂loss/∂o and ∂loss/∂W out."""
        p, codes, weight = ctx.saved_tensors
        rho = rho.to(weight.dtype)
        grad_o = grad_weight = None
        with torch.autocast(p.device.type, enabled=False):
            if ctx.needs_input_grad[2]:
                rows, z = rho.flatten(0, -2), codes.flatten()
                if ctx.linear:
                    grad_weight = signs(z, len(weight)).type_as(rows).t() @ rows
                else:
                    grad_weight = torch.zeros_like(weight).index_add_(0, z, rows)
            if ctx.needs_input_grad[0]:
                grad_o = logit_gradient(rho, p, codes, weight, ctx.linear, ctx.gradient)
                grad_o = grad_o.to(ctx.o_dtype)
        return grad_o, None, grad_weight, None, None


def embedding(codes: Tensor, weight: Tensor, linear: bool) -> Tensor:
    """r (…, D) of codes (…): Σ_h ± w_h with W (H, D), or row z of W (2^H, D)."""
    return signs(codes, len(weight)).type_as(weight) @ weight if linear else weight[codes]


def logit_gradient(
    rho: Tensor, p: Tensor, codes: Tensor, weight: Tensor, linear: bool, gradient: Gradient
) -> Tensor:
    """∂loss/∂o (…, H), the gradient of G_d being Π_h p_h^{U_h(d)} (1 − p_h)^{1 − U_h(d)}'s:

    all codes: Σ_d g_d G_d (U_h(d) − p_h), which is 2 p_h (1 − p_h) ρ·w_h for r = Σ_h ± w_h;
    score: g_d (U_h(d) − p_h) of the sampled d; sampled code: that times G_d.
    """
    if gradient == Gradient.all_codes:
        assert linear, "the table's gradient over all codes is binary_mapper's"
        return 2 * p * (1 - p) * (rho @ weight.t())
    bits = signs(codes, p.shape[-1]) > 0
    g = (rho * embedding(codes, weight, linear)).sum(-1, keepdim=True)  # (…, 1)
    if gradient == Gradient.sampled_code:
        g = g * torch.where(bits, p, 1 - p).prod(-1, keepdim=True)
    return g * (bits.type_as(p) - p)


def linear_mapper(
    o: Tensor, noise: Tensor, weight: Tensor, gradient: Gradient = Gradient.all_codes
) -> tuple[Tensor, Tensor]:
    """Sample bits b_h = [noise_h < sigmoid(o_h)]; return r = Σ_h (2 b_h − 1) w_h and the codes.

    Arguments, results and errors as those of ``binary_mapper``, but for ``weight`` W (H, D), whose
    row h is w_h, and the gradient in o, which LatentDesign.gradient explains.
    """
    check_shapes(o, noise, weight, o.shape[-1])
    r, codes = Mapper.apply(o, noise, weight, True, gradient)
    return r, codes


def sampled_mapper(
    o: Tensor, noise: Tensor, table: Tensor, gradient: Gradient
) -> tuple[Tensor, Tensor]:
    """``binary_mapper`` with another gradient in o, from the sampled code alone."""
    check_shapes(o, noise, table, 1 << o.shape[-1])
    r, codes = Mapper.apply(o, noise, table, False, gradient)
    return r, codes
