"""The key-value cache of one block, in buffers of fixed size.

Shapes: B rows, M key-value heads, T new positions, E head width.
"""

from torch import Tensor

from ftmodel.config import ModelConfig


class LayerCache:
    """Keys and values of one block for the positions read so far."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v (B, M, T, E); return all keys and values so far, (B, M, length, E) each. Raises
        ValueError if they do not fit.
        """
        end = self.length + k.shape[2]
        if end > self.capacity:
            raise ValueError(f"cache: it has room for {self.capacity} positions, not for {end}")
        if self.keys is None or self.values is None:
            b, m, _, e = k.shape
            self.both = k.new_empty(2, b, m, self.capacity, e)
            self.keys, self.values = self.both[0], self.both[1]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def append_one(self, kv: Tensor) -> tuple[Tensor, Tensor]:
        """``append`` for one position, kv (2, B, M, E), to a cache that is not empty."""
        assert self.keys is not None and self.values is not None and self.length < self.capacity
        self.both.select(3, self.length).copy_(kv)
        self.length += 1
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)

    def select(self, rows: Tensor, capacity: int) -> "LayerCache":
        """A copy of ``rows`` (R,), repeats allowed, with room for ``capacity`` positions."""
        copy = LayerCache(capacity)
        if self.keys is not None and self.values is not None:
            copy.append(self.keys[rows, :, : self.length], self.values[rows, :, : self.length])
        return copy

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy rows ``source`` (R,) over rows ``target`` (R,), all at once."""
        assert self.keys is not None and self.values is not None, "an empty cache"
        for each in self.keys, self.values:  # one by one: faster than by an index of both
            filled = each[:, :, : self.length]
            filled.index_copy_(0, target, filled.index_select(0, source))

    def keep(self, rows: int) -> None:
        """Keep the first rows only."""
        self.both = self.both[:, :rows]
        self.keys, self.values = self.both[0], self.both[1]


def new_cache(config: ModelConfig, capacity: int) -> list[LayerCache]:
    """An empty key-value cache, one ``LayerCache`` per block, for sequences of up to ``capacity``
    positions beside a random prefix. The first pass that uses it fixes the number of rows.
    """
    return [LayerCache(config.random_prefix + capacity) for _ in range(config.n_layers)]


def cached(cache: list[LayerCache] | None) -> int:
    """The number of positions read so far."""
    return cache[0].length if cache else 0
