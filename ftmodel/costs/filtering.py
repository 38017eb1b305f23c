"""What the filtering bound costs (ftmodel/inference/filtering.py), z proposed by the prior.

Shapes: S chunks of T = ``context`` tokens, K particles, N heads of width E, L blocks, V vocabulary.
"""

from ftmodel.costs.latent_memory import memory_blocks, memory_projection
from ftmodel.costs.training import elements, linear_elements, meta_model
from ftmodel.designs.design import Map, Per
from ftmodel.model.config import ModelConfig


def filter_flops(config: ModelConfig, vocab_size: int, chunks: int, particles: int) -> float:
    """A forward pass: the lower half once per token, upper half and read-out for each particle.
    Attention reads (T + 1) / 2 keys on average, 4 N E each. One z per sequence has no filter.
    """
    assert config.latent.per != Per.sequence, "one z per sequence leaves nothing to filter"
    model = meta_model(config, vocab_size)
    lower, upper = config.lower_blocks, config.n_layers - config.lower_blocks
    attention = 4 * config.n_heads * config.head_channels * (config.context + 1) / 2
    once = 2 * linear_elements(model.blocks[:lower]) + lower * attention
    matrices = linear_elements(model.blocks[lower:]) + linear_elements(model.readout)
    matrices += memory_projection(config)
    if config.latent.map == Map.linear:
        matrices += config.latent_bits * config.d_model
    if model.latent and model.latent.recurrent:
        matrices += linear_elements(model.latent.prior)
    elif model.latent:
        once += 2 * linear_elements(model.latent.prior)
    each = 2 * matrices + (upper + memory_blocks(config)) * attention
    return chunks * config.context * (once + particles * each)


def filter_memory(config: ModelConfig, vocab_size: int, chunks: int, particles: int) -> float:
    """Bytes in float32, with the parameters: keys and values of the upper half for S · K rows; the
    lower half's activations; logits and their log-softmax of a token of each row; the noise of z of
    all tokens. Not counted: rows that are copied when particles are resampled, at most the keys and
    values of one block.
    """
    rows, upper = chunks * particles, config.n_layers - config.lower_blocks
    upper += memory_blocks(config)  # keys and values once more
    kv = config.head_channels * config.n_kv_heads
    cache = 4 * 2 * kv * upper * config.context * rows
    x = 4 * config.d_model * config.context * chunks
    noise = 4 * config.latent_bits * config.context * rows
    return 4 * elements(meta_model(config, vocab_size)) + cache + x + 8 * vocab_size * rows + noise
