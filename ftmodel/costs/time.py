"""Time of a training step on a CPU, without compilation, from two rates of the machine.

    seconds = products / rate of products + elementwise / rate of elementwise operators

Products are the FLOPs of PyTorch's kernels for a CPU: causal attention goes through all T² pairs
of a sequence of up to 512 tokens, its block of keys, and the backward pass computes the scores
again (14 D per pair and block in place of 12 D). Elementwise are the bytes that all other operators
read and write, each tensor once per operator. Both are counted as PyTorch calls the operators, on
tensors without storage, so they follow the model's code.

Small models spend most of their time on the second part: bytes grow with D, FLOPs with D².
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ftmodel.costs.counting import elements, flops_in, step_data, step_loss, undrawn_model
from ftmodel.model.config import ModelConfig

NOT_COUNTED = {"mm", "addmm", "addmm_", "bmm", "_unsafe_view"}  # the last copies nothing
# of each parameter, float32: AdamW reads four numbers and writes three, clipping reads the
# gradient, reads it again and writes it
OPTIMIZER = 40


@dataclass(frozen=True)
class Work:
    """Of one step."""

    products: float  # FLOPs
    elementwise: float  # bytes


@dataclass(frozen=True)
class Rates:
    products: float  # FLOP/s
    elementwise: float  # bytes per second

    def seconds(self, work: Work) -> float:
        return work.products / self.products + work.elementwise / self.elementwise


class ElementwiseBytes(TorchDispatchMode):
    """Bytes that operators read and write, but for products, attention and views."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        namespace, name = operator._schema.name.split("::")
        moves = namespace == "aten" and not operator.is_view and "empty" not in name
        if moves and name not in NOT_COUNTED and not name.startswith("_scaled_dot_product"):
            tensors = tree_leaves((args, kwargs, result))
            self.total += sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))
        return result


def step_work(config: ModelConfig, vocab_size: int, batch: int) -> Work:
    """Of a step of ``batch`` sequences in float32, with AdamW and clipping; nothing is computed."""
    with FakeTensorMode():
        model, data = undrawn_model(config, vocab_size), step_data(config, batch)
        with ElementwiseBytes() as elementwise:
            step_loss(model, data).backward()
        with FlopCounterMode(display=False) as flops:
            step_loss(model, data).backward()
    return Work(sum(flops_in(flops)), elementwise.total + OPTIMIZER * elements(model))


def fit_rates(works: Sequence[Work], seconds: Sequence[float]) -> Rates:
    """The two rates whose relative errors have the least sum of squares."""
    parts = torch.tensor([[w.products, w.elementwise] for w in works], dtype=torch.float64)
    relative = parts / torch.tensor(seconds, dtype=torch.float64)[:, None]
    scale = relative.max(0).values
    fit = torch.linalg.lstsq(relative / scale, torch.ones(len(works), 1, dtype=torch.float64))
    products, elementwise = (scale / fit.solution[:, 0]).tolist()
    return Rates(products, elementwise)
