"""PyTorch's attention, in the precision in which a CPU computes it fastest."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def attend(queries: Tensor, keys: Tensor, values: Tensor, **settings: Any) -> Tensor:
    """In float32 when training under autocast on a CPU: bf16 is five times slower backwards."""
    if not (torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(queries, keys, values, **settings)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(
            queries.float(), keys.float(), values.float(), **settings
        ).type_as(queries)
