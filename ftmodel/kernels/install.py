"""Replaces parts of a model by faster ones that compute the same."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.kernels.product import Linear
from ftmodel.model.layers import Attention

Model = TypeVar("Model", bound=nn.Module)


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
