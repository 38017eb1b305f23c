"""The matrices that decoding multiplies by, as they are or rounded to bfloat16.

A step with few rows takes the time to read all weights once; bfloat16 halves it. Activations are
rounded for these products as well, sums stay float32; norms, attention, z and the residual stream
are float32.

Shapes: B rows, I inputs, O outputs.
"""

import torch
from torch import Tensor, nn

from ftmodel.kernels.product import onednn_is_faster
from ftmodel.model.free_transformer import FreeTransformer

# multiply-adds from which on a product uses oneDNN: its call costs 10 µs, a call of MKL 1
MIN_MULTIPLICATIONS = 1 << 20
LEAST_ROUNDED = 1 << 18  # elements of a matrix that is worth rounding


class Matrix:
    """W (O, I), for products with ``rows`` rows."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.weight, self.transposed = weight, weight.t()
        self.onednn = onednn_is_faster(weight) and rows * weight.numel() >= MIN_MULTIPLICATIONS

    def times(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x Wᵀ (B, O) for x (B, I), written into ``out`` if there is one."""
        if not self.onednn:
            return torch.mm(x, self.transposed, out=out)
        y = self.by_onednn(x)
        return y if out is None else out.copy_(y)

    def add_times(self, x: Tensor, to: Tensor) -> None:
        """Add x Wᵀ to ``to`` (B, O)."""
        if self.onednn:
            to.add_(self.by_onednn(x))
        else:
            to.addmm_(x, self.transposed)

    def by_onednn(self, x: Tensor) -> Tensor:
        return torch.ops.ftmodel.onednn_product(x, self.weight)


class RoundedMatrix(Matrix):
    """W in bfloat16, in oneDNN's own layout."""

    def __init__(self, packed: Tensor) -> None:
        self.weight, self.onednn = packed, True

    def by_onednn(self, x: Tensor) -> Tensor:
        y = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), self.weight, None, "none", [], "")
        return y.float()


def bf16_products() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself."""
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


class RoundedWeights:
    """A model's large matrices rounded to bfloat16, for many generations; half its memory."""

    def __init__(self, model: FreeTransformer) -> None:
        """Raises ValueError unless the model is on a CPU that multiplies bfloat16 itself."""
        self.model = model
        if model.embedding.weight.device.type != "cpu" or not bf16_products():
            raise ValueError("it needs a model on a CPU with AVX512-BF16 or AMX")
        read = [module for module in model.blocks.modules() if isinstance(module, nn.Linear)]
        with torch.no_grad():
            self.packed = {
                m.weight: torch.ops.mkldnn._reorder_linear_weight(m.weight.bfloat16())
                for m in (*read, model.readout)
                if m.weight.numel() >= LEAST_ROUNDED
            }


def matrix(weight: Tensor, rows: int, rounded: RoundedWeights | None = None) -> Matrix:
    """Prepare ``weight`` (O, I) for products with ``rows`` rows, rounded if ``rounded`` has it."""
    packed = None if rounded is None else rounded.packed.get(weight)
    return Matrix(weight, rows) if packed is None else RoundedMatrix(packed)
