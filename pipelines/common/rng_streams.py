"""Random numbers of training and evaluation: one stream for each seed, purpose and index.

A process's corpus is drawn from ``manual_seed`` with its own seed (pipelines/data/build.py); no key
here equals that.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum

import numpy as np
import torch
from torch import Generator


class Purpose(IntEnum):
    """What random numbers are for. Append only: renumbering changes every seed's stream."""

    ORDER = 0  # of the windows, one index per epoch
    NOISE = 1  # of z in training, or of random prefixes
    WEIGHTS = 2  # before training
    BOUNDS = 3  # noise of z, for ELBO, IWAE and the prior-sample bound
    LABEL = 4  # noise of z that the label is predicted from
    PERMUTATIONS = 5  # of labels
    GROUPS = 6  # sequences of the target task; indices 1 to 3: those to look at
    TEXT = 7  # generations of text to look at; indices as for GROUPS
    COIN = 8  # z of the coin's figure
    ANSWERS = 9  # z of benchmarks' prompts, answers and texts
    GENERATION = 10  # z and tokens of benchmarks' generations
    LATENT = 11  # sequences of the target task and their z, for the probe of z
    FILTER = 12  # z and resampling of particle filters, for the filtering bound
    START = 13  # noise of z, for the losses before the first step from a parent
    BITS = 14  # permutations of z, for what its bits say of tokens
    SWAP = 15  # z of texts, and whose z a text is given
    STEERING = 16  # pinned z, tokens generated with them, and permutations
    SEQUENCE_Z = 17  # one z per sequence: draws, the text at a path's end, and permutations
    CALIBRATION = 18  # z and resampling of the filters that others are calibrated by
    HELD_OUT = 19  # z of held-out windows that are scored while training goes on
    ACCURACY = 20  # z with which the ends of sequences of a process are generated
    OWN_TEXT = 21  # text that a model writes with its z, and filters of it


def key(seed: int, purpose: Purpose, index: int = 0) -> np.random.SeedSequence:
    """A key of exactly three 32-bit words: NumPy takes (s, p) and (s, p, 0) for the same."""
    words = (seed, purpose, index)
    assert all(0 <= word < 1 << 32 for word in words), words
    return np.random.SeedSequence(words)


def stream_seed(seed: int, purpose: Purpose, index: int = 0) -> int:
    """A seed for PyTorch, 63 bits; its generator on the CPU reads the lower 32 of them."""
    return int(key(seed, purpose, index).generate_state(1, np.uint64)[0] >> 1)


def generator(seed: int, purpose: Purpose, index: int = 0) -> Generator:
    return torch.Generator().manual_seed(stream_seed(seed, purpose, index))


def philox(seed: int, purpose: Purpose, first: int, second: int) -> np.random.Generator:
    """The stream with index (first, second), without drawing others: Philox has a counter."""
    words = key(seed, purpose).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=[0, second, first, 0]))


def philox_at(
    seed: int, purpose: Purpose, first: int, seconds: Iterable[int]
) -> Iterator[np.random.Generator]:
    """Yield ``philox`` with index (first, second) for each of ``seconds``. It is one generator that
    is moved when the next is asked for: a new generator takes ten times as long.
    """
    stream = philox(seed, purpose, first, 0)
    state = stream.bit_generator.state
    for second in seconds:
        state["state"]["counter"][1] = second
        stream.bit_generator.state = state
        yield stream
