"""What only makes a model faster, put in its place."""

from typing import TypeVar

from torch import nn

from ftmodel.kernels.attention import attend
from ftmodel.kernels.product import Linear
from ftmodel.model.layers import Attention

Model = TypeVar("Model", bound=nn.Module)


def use_kernels(model: Model) -> Model:
    """The same model, whose linear layers and attention are computed by the fastest kernels that
    are known for the processor; results are equal up to rounding.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
        if isinstance(module, Attention):
            module.attend = attend  # type: ignore[assignment]
    return model
