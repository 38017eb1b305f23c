"""Replace parts of a model by faster ones that compute the same."""

from typing import TypeVar

from torch import nn

from ftmodel.kernels.attention import attend
from ftmodel.kernels.product import Linear
from ftmodel.model.layers import Attention

Model = TypeVar("Model", bound=nn.Module)


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
