"""The order of an epoch's windows: a permutation of 0 … n − 1, any part of which can be computed.

A table of many windows would take the longer the larger the corpus is. Their permutation is a
function: a Feistel network of as few bits as hold n − 1 is a bijection whatever its rounds compute,
and what it maps outside of 0 … n − 1 it maps again until it is inside (cycle walking; Black and
Rogaway 2002).
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from pipelines.common.rng_streams import Purpose, generator, key
from pipelines.common.splitmix64 import mix

TABLE = 1 << 20  # at most so many windows are shuffled as a table, in some 10 ms
ROUNDS = 8

Indices = NDArray[np.int64]
Order = Callable[[Indices], Indices]  # positions in an epoch → windows


def order(n: int, seed: int, epoch: int) -> Order:
    if n > TABLE:
        words = key(seed, Purpose.ORDER, epoch).generate_state(ROUNDS, np.uint64)
        return feistel_order(n, words.astype(np.uint64))
    table = torch.randperm(n, generator=generator(seed, Purpose.ORDER, epoch)).numpy()
    return lambda positions: table[positions]


def feistel_order(n: int, keys: NDArray[np.uint64]) -> Order:
    """The permutation given by these keys, one a round."""
    bits = (n - 1).bit_length()
    low = np.uint64(bits // 2)
    masks = np.uint64((1 << bits // 2) - 1), np.uint64((1 << bits - bits // 2) - 1)

    def network(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        halves = [x & masks[0], x >> low]
        for number, word in enumerate(keys):
            side = number % 2
            halves[side] = halves[side] ^ (mix(halves[1 - side] ^ word) & masks[side])
        return halves[0] | halves[1] << low

    def windows(positions: Indices) -> Indices:
        result = network(positions.astype(np.uint64))
        while len(outside := np.flatnonzero(result >= n)):
            result[outside] = network(result[outside])
        return result.astype(np.int64)

    return windows
