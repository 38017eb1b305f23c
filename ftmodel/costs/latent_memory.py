"""What r as memory costs: in one block each position has a second key and value.

Shapes: T = ``context`` tokens.
"""

from ftmodel.designs.design import Inject
from ftmodel.model.config import ModelConfig


def memory_blocks(config: ModelConfig) -> int:
    """Number of blocks that read memory: 1 or 0."""
    return int(config.latent_bits > 0 and config.latent.inject == Inject.memory)


def memory_projection(config: ModelConfig) -> int:
    """Elements of the matrix that projects r to its keys and values."""
    kv_width = config.head_channels * config.n_kv_heads
    return memory_blocks(config) * 2 * config.d_model * kv_width


def memory_mask(config: ModelConfig, batch: int, half: bool) -> int:
    """Bytes of the mask (T, 2 T) of that block's attention, the same for all rows unless these have
    documents.
    """
    rows = batch if config.document_mask else 1
    return memory_blocks(config) * rows * (2 if half else 4) * 2 * config.context**2
