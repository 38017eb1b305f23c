"""Activation checkpointing, torch.compile, and then, in the order that FSDP2 asks for, sharding.

The mathematics stays the same, and so do the names of all parameters and the checkpoints.
torch.distributed.checkpoint is not used, because reading its checkpoints unpickles whatever they
hold. Ours are read as tensors and plain data, and have checksums.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Module
from torch.optim import Optimizer

from ftmodel.layers import Block
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.checkpoint import load_content
from pipelines.config.schema import Compute
from pipelines.host.compiler import check_compile, compiler_failure
from pipelines.host.console import say

SHALLOW = 4  # blocks; compiling the whole loss takes longer with more


class Compiled(StrEnum):
    nothing = ""  # false
    blocks = "blocks"
    loss = "model and loss"


def blocks_of(model: FreeTransformer) -> list[Module]:
    """All blocks, the encoder's last."""
    return [*model.blocks, *(model.latent.blocks if model.latent else [])]


def worth_compiling(elements: float) -> bool:
    """Whether a worker ends sooner with compiled code, if it can be compiled. ``elements`` is
    tokens × D × L of its whole run, to which the time that fused code saves is proportional.

    On a CPU it saves 1.4 to 2.5 × 10⁻⁸ s of a thread per element, and takes 15 s to compile
    (LOG.md, 2026-11-21). On a GPU that was not measured: the bound there is a guess.
    """
    return elements >= (3e12 if torch.cuda.is_available() else 1e9 * torch.get_num_threads())


def speed_up(
    model: FreeTransformer, compute: Compute, elements: float = 0, alone: bool = False
) -> Compiled:
    """Have blocks computed again in the backward pass, and compiled, as ``compute`` says. If it
    leaves that open, they are compiled if a worker's run has enough ``elements`` (see
    worth_compiling). Returns what is compiled: if it is the whole loss, the caller compiles it,
    which makes a shallow model in one worker, ``alone``, a tenth faster (LOG.md, 2026-11-23).
    Raises UserError if what ``compute`` asks for cannot be compiled here.
    """
    check_compile(compute.compile)
    if compute.activation_checkpointing:
        apply_activation_checkpointing(
            model,
            checkpoint_wrapper_fn=lambda block: checkpoint_wrapper(block, preserve_rng_state=False),
            check_fn=lambda module: isinstance(module, Block),
        )
    compiled = compute.compile
    torch._dynamo.config.suppress_errors = compiled is None  # unasked for, it must not fail
    if compiled is None:
        compiled = worth_compiling(elements)
        if compiled and (reason := compiler_failure()):
            say(f"nothing is compiled, and training takes longer: {reason}")
            compiled = False
    if not compiled:
        return Compiled.nothing
    shallow = model.config.n_layers <= SHALLOW and not torch.cuda.is_available()
    if shallow and alone and not compute.activation_checkpointing:
        return Compiled.loss
    for block in blocks_of(model):  # one by one: alike, they share what is compiled
        block.compile()
    return Compiled.blocks


def shard(model: FreeTransformer, mesh: DeviceMesh) -> None:
    """Shard every block over the workers, and the rest as one more unit."""
    if isinstance(model, FSDPModule):
        return
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy for FSDP2 on a given device; any strategy reads its checkpoints."""

    def __init__(self, device: torch.device, world_size: int) -> None:
        super().__init__(data_parallel_size=world_size, tensor_parallel_size=1)
        self.device = device

    @property
    def root_device(self) -> torch.device:
        return self.device

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        inner = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        return inner.state_dict()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None
    ) -> None:
        content = gathered(checkpoint, keep=self.is_global_zero)
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(content, filepath)

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        content: dict[str, Any] = load_content(Path(checkpoint_path))
        return content

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        like = self.lightning_module.state_dict()
        state = checkpoint["state_dict"]
        self.lightning_module.load_state_dict({name: cut(state[name], like[name]) for name in like})

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the state of any number of workers: parameters have the same order in all."""
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            like = [p for group in optimizer.param_groups for p in group["params"]]
            state = {
                i: {key: cut(value, like[i]) for key, value in entry.items()}
                for i, entry in saved["state"].items()
            }
            optimizer.load_state_dict({**saved, "state": state})


def gathered(value: Any, keep: bool) -> Any:
    """A checkpoint's content with each sharded tensor put together, in the memory of the processes
    that ``keep`` it; all workers take part.
    """
    if isinstance(value, DTensor):
        whole = value.full_tensor()
        return whole.cpu() if keep else None
    if isinstance(value, dict):
        return {key: gathered(entry, keep) for key, entry in value.items()}
    if isinstance(value, list):
        return [gathered(entry, keep) for entry in value]
    return value


def cut(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This worker's part of a checkpoint's tensor, sharded as ``like`` is, or all of it."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor.clone()
    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    ).clone()
