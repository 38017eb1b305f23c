"""PyTorch's attention, in the precision in which a CPU computes it fastest."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def attend(queries: Tensor, keys: Tensor, values: Tensor, **settings: Any) -> Tensor:
    """Training under autocast on a CPU computes it in float32: the backward pass takes five times
    as long in bf16 (LOG.md, 2026-11-24).
    """
    if not (torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(queries, keys, values, **settings)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(
            queries.float(), keys.float(), values.float(), **settings
        ).type_as(queries)
