"""Activation checkpointing and torch.compile, in the order that FSDP2 asks for: these first, then
sharding (fsdp.py).

The mathematics stays the same, and so do the names of all parameters.
"""

from enum import StrEnum

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.nn import Module

from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.layers import Block
from pipelines.common.compiler import check_compile, compiler_failure
from pipelines.common.console import say
from pipelines.config.schema import Compute

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
