"""What the filtering bound costs (ftmodel/inference/filtering.py), z proposed by the prior.

Shapes: S chunks of T = ``context`` tokens, K particles, V vocabulary, H latent bits.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from ftmodel.costs.counting import flops_in, sizes, undrawn_model, whole
from ftmodel.inference.bounds import lower_half
from ftmodel.model.cache import new_cache
from ftmodel.model.config import ModelConfig


@whole
def of_a_chunk(config: ModelConfig, vocab_size: int) -> np.ndarray:
    """FLOPs of a forward pass that all particles share, and of one particle; each as products, and
    attention over all T positions. Bytes of one particle's keys and values.
    """

    def counted(work: Callable[[], torch.Tensor | None]) -> np.ndarray:
        with FlopCounterMode(display=False) as flops:
            work()
        return flops_in(flops)

    with FakeTensorMode(), torch.no_grad():
        model = undrawn_model(config, vocab_size)
        latent, cache = model.latent, new_cache(config, config.context)
        assert latent is not None, "a baseline has nothing to filter"
        tokens = torch.zeros(1, config.context, dtype=torch.long)
        x, positions, _ = lower_half(model, tokens, None)
        lower = counted(lambda: model.lower(tokens, positions))
        prior = counted(lambda: latent.prior(x, x))
        upper = counted(
            lambda: model.logits(model.upper(x, latent.embed(tokens), positions, cache))
        )
    once, each = (lower, upper + prior) if latent.prior.sequential else (lower + prior, upper)
    return np.array([*once, *each, sum(c.both.nbytes for c in cache if c.length)])


def filter_flops(config: ModelConfig, vocab_size: int, chunks: int, particles: int) -> float:
    """A forward pass: the lower half once per token, upper half and read-out for each particle.
    Attention reads (T + 1) / 2 positions on average. One z per sequence has no filter.
    """
    assert not config.latent.one_code, "one z per sequence leaves nothing to filter"
    causal = (config.context + 1) / (2 * config.context)
    once, attention_once, each, attention_each, _ = of_a_chunk(config, vocab_size)
    particle = each + causal * attention_each
    return float(chunks * (once + causal * attention_once + particles * particle))


def filter_memory(config: ModelConfig, vocab_size: int, chunks: int, particles: int) -> float:
    """Bytes in float32, with the parameters: keys and values of the upper half for S · K rows; the
    lower half's activations; logits and their log-softmax of a token of each row; the noise of z of
    all tokens. Not counted: rows that are copied when particles are resampled, at most the keys and
    values of one block.
    """
    rows = chunks * particles
    cache = of_a_chunk(config, vocab_size)[-1] * rows
    x = 4 * config.d_model * config.context * chunks
    noise = 4 * config.latent_bits * config.context * rows
    return float(4 * sizes(config, vocab_size)[0] + cache + x + 8 * vocab_size * rows + noise)
