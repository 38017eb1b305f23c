"""What is done to every block for the sake of memory and speed, in the order that FSDP2 asks for:
activation checkpointing, compilation, then, in sharding.py, sharing out.

The mathematics stays the same, and so do the names of all parameters.
"""

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.nn import Module

from ftmodel.layers import Block
from ftmodel.transformer import FreeTransformer
from pipelines.schema import Compute


def blocks_of(model: FreeTransformer) -> list[Module]:
    """All blocks, the encoder's last."""
    return [*model.blocks, *([model.latent.encoder_block] if model.latent else [])]


def speed_up(model: FreeTransformer, compute: Compute) -> None:
    """Have blocks computed again in the backward pass, and compiled, as ``compute`` says."""
    if compute.activation_checkpointing:
        apply_activation_checkpointing(
            model,
            checkpoint_wrapper_fn=lambda block: checkpoint_wrapper(block, preserve_rng_state=False),
            check_fn=lambda module: isinstance(module, Block),
        )
    if compute.compile:
        for block in blocks_of(model):  # one by one: alike, they share what is compiled
            block.compile()
