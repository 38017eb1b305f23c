"""The order of the data and the noise of z: pure functions of seed, step and row of the batch.

A resumed run therefore sees exactly the batches it would have seen, and so does one that shares
its batches among another number of workers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from pipelines.artifacts.tokens.shards import Windows
from pipelines.common.rng_streams import Purpose, generator, philox_at


def order(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The windows 0 … n − 1 in the order of an epoch, 8 bytes each."""
    return torch.randperm(n, generator=generator(seed, Purpose.ORDER, epoch)).numpy()


def latent_noise(seed: int, step: int, rows: range, length: int, bits: int) -> Tensor:
    """Uniform noise (len(rows), length, bits) on [0, 1) for some rows of a step's batch, for z or
    for the random prefix.
    """
    noise = np.empty((len(rows), length, bits), np.float32)
    for row, stream in zip(noise, philox_at(seed, Purpose.NOISE, step, rows), strict=True):
        stream.random(out=row, dtype=np.float32)
    return torch.from_numpy(noise)


@dataclass(frozen=True)
class Share:
    """One process's share of a batch: its part of each of ``accumulate`` micro-batches."""

    rank: int = 0
    world_size: int = 1
    accumulate: int = 1

    def rows(self, batch_size: int, micro: int) -> range:
        """The rows of the batch in this process's micro-batch ``micro``."""
        size = batch_size // (self.world_size * self.accumulate)
        start = (micro * self.world_size + self.rank) * size
        return range(start, start + size)


class StepBatches(Dataset[dict[str, Tensor]]):
    """Item ``step · accumulate + micro`` is a worker's micro-batch, with b rows:

    tokens (b, T + 1), windows (b,), the ids of those windows, and noise (b, T, noise_width) if the
    model reads any. Each epoch has its own permutation of the windows.
    """

    def __init__(
        self,
        windows: Windows,
        batch_size: int,
        steps: int,
        seed: int,
        noise_width: int = 0,
        share: Share | None = None,
    ) -> None:
        self.windows, self.batch_size, self.steps, self.seed = windows, batch_size, steps, seed
        self.noise_width = noise_width
        self.share = share or Share()
        self.order = lru_cache(maxsize=1)(lambda epoch: order(len(windows), seed, epoch))

    def __len__(self) -> int:
        return self.steps * self.share.accumulate

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        step, micro = divmod(index, self.share.accumulate)
        rows = self.share.rows(self.batch_size, micro)
        positions = step * self.batch_size + np.arange(rows.start, rows.stop)
        epochs, within = np.divmod(positions, len(self.windows))
        parts = [self.order(epoch)[within[epochs == epoch]] for epoch in np.unique(epochs).tolist()]
        windows = torch.from_numpy(np.concatenate(parts))
        batch = {"tokens": self.windows.batch(windows), "windows": windows}
        if self.noise_width:
            length = batch["tokens"].shape[1] - 1
            batch["noise"] = latent_noise(self.seed, step, rows, length, self.noise_width)
        return batch


class FromStep(Sampler[int]):
    """Items from a step to the last; for Lightning the length is always the whole run's."""

    def __init__(self, step: int, batches: StepBatches) -> None:
        self.first, self.count = step * batches.share.accumulate, len(batches)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.count))
