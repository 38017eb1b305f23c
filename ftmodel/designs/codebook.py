"""How z becomes r, and how the gradient of r reaches the logits of the bits of z.

Shapes: … any leading dimensions, H bits, D width. W is the post-sampler, a parameter of `Latent`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ftmodel.config import Gradient, LatentDesign, Map
from ftmodel.mapper import binary_mapper, pack_bits, signs


class TableCodebook:
    """r is row z of a table W (2^H, D), with a gradient over all codes (the paper)."""

    def rows(self, bits: int) -> int:
        """Rows of W for H = ``bits``."""
        return 1 << bits

    def sample(self, o: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Sample z (…) with bits [noise_h < sigmoid(o_h)], o and noise (…, H); returns its r (…, D)
        and z. Differentiable in o and W.
        """
        return binary_mapper(o, noise, weight)

    def embed(self, z: Tensor, weight: Tensor) -> Tensor:
        """Embedding r (…, D) of z (…)."""
        return weight[z]

    def rms(self, weight: Tensor) -> Tensor:
        """RMS of r over all codes and channels."""
        return weight.square().mean().sqrt()


class SampledTable(TableCodebook):
    """The paper's table, with a gradient of the sampled code alone."""

    def __init__(self, gradient: Gradient) -> None:
        self.gradient = gradient

    def sample(self, o: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        r, codes = Mapper.apply(o, noise, weight, self)
        return r, codes

    def weight_gradient(self, rho: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        """∂loss/∂W, from ρ = ∂loss/∂r (N, D) at codes z (N,)."""
        return torch.zeros_like(weight).index_add_(0, z, rho)

    def logit_gradient(self, rho: Tensor, p: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
        """∂loss/∂o (…, H) from the sampled code d, g_d = ρ·r_d: the score g_d (U_h(d) − p_h), for
        ``sampled_code`` times G_d = Π_h p_h^{U_h(d)} (1 − p_h)^{1 − U_h(d)} (eq. 8 of the paper).
        """
        bits = signs(codes, p.shape[-1]) > 0  # U(d), the bits of d
        g = (rho * self.embed(codes, weight)).sum(-1, keepdim=True)  # (…, 1)
        if self.gradient == Gradient.sampled_code:
            g = g * torch.where(bits, p, 1 - p).prod(-1, keepdim=True)
        return g * (bits.type_as(p) - p)


class LinearCodebook(SampledTable):
    """r is Σ_h ± w_h, row h of W (H, D) with the sign of bit h, with any of the gradients."""

    def embed(self, z: Tensor, weight: Tensor) -> Tensor:
        return signs(z, len(weight)).type_as(weight) @ weight

    def rms(self, weight: Tensor) -> Tensor:
        return weight.square().sum(0).mean().sqrt()  # signs of bits are independent

    def rows(self, bits: int) -> int:
        return bits

    def weight_gradient(self, rho: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        return signs(z, len(weight)).type_as(rho).t() @ rho

    def logit_gradient(self, rho: Tensor, p: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
        """∂loss/∂o (…, H); for ``all_codes`` Σ_d g_d G_d (U_h(d) − p_h) = 2 p_h (1 − p_h) ρ·w_h."""
        if self.gradient == Gradient.all_codes:
            return 2 * p * (1 - p) * (rho @ weight.t())
        return super().logit_gradient(rho, p, codes, weight)


def codebook(design: LatentDesign) -> TableCodebook:
    if design.map == Map.linear:
        return LinearCodebook(design.gradient)
    if design.gradient == Gradient.all_codes:
        return TableCodebook()
    return SampledTable(design.gradient)


class Mapper(torch.autograd.Function):
    """Sample a code and embed it, with the gradients of a codebook other than the paper's."""

    @staticmethod
    def forward(
        ctx: Any, o: Tensor, noise: Tensor, weight: Tensor, codebook: SampledTable
    ) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(o.float() if o.dtype.itemsize < 4 else o)  # eq. 6 of the paper
        codes = pack_bits(noise < p)  # eq. 7
        ctx.save_for_backward(p, codes, weight)
        ctx.o_dtype, ctx.codebook = o.dtype, codebook
        ctx.mark_non_differentiable(codes)
        with torch.autocast(o.device.type, enabled=False):
            return codebook.embed(codes, weight), codes

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, rho: Tensor, _codes: Tensor
    ) -> tuple[Tensor | None, None, Tensor | None, None]:
        """ρ = ∂loss/∂r in, ∂loss/∂o and ∂loss/∂W out."""
        p, codes, weight = ctx.saved_tensors
        rho = rho.to(weight.dtype)
        grad_o = grad_weight = None
        with torch.autocast(p.device.type, enabled=False):
            if ctx.needs_input_grad[2]:
                rows, z = rho.flatten(0, -2), codes.flatten()
                grad_weight = ctx.codebook.weight_gradient(rows, z, weight)
            if ctx.needs_input_grad[0]:
                grad_o = ctx.codebook.logit_gradient(rho, p, codes, weight).to(ctx.o_dtype)
        return grad_o, None, grad_weight, None
