"""The order of the data: batch ``step`` is a pure function of (seed, step).

A resumed run therefore sees exactly the batches it would have seen, and so does its latent noise.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from pipelines.shards import Windows

ORDER, NOISE, INIT = range(3)  # purposes, so that no two random streams of a run coincide


def stream_seed(seed: int, purpose: int, index: int = 0) -> int:
    """A 64-bit seed of its own for each (seed, purpose, index)."""
    return int(np.random.SeedSequence((seed, purpose, index)).generate_state(1, np.uint64)[0] >> 1)


class StepBatches(Dataset[Tensor]):
    """Item ``step`` is that step's batch (B, T + 1); each epoch has its own permutation."""

    def __init__(self, windows: Windows, batch_size: int, steps: int, seed: int) -> None:
        self.windows, self.batch_size, self.steps, self.seed = windows, batch_size, steps, seed
        self.permutation = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(stream_seed(self.seed, ORDER, epoch))
        return torch.randperm(len(self.windows), generator=generator)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Tensor:
        n = len(self.windows)
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        return self.windows.batch(torch.stack([self.permutation(i // n)[i % n] for i in places]))


class FromStep(Sampler[int]):
    """Steps from the trainer's current one to the last; its length is always the whole run's."""

    def __init__(self, current: Callable[[], int], steps: int) -> None:
        self.current, self.steps = current, steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.current(), self.steps))


class BatchModule(L.LightningDataModule):
    def __init__(self, batches: StepBatches) -> None:
        super().__init__()
        self.batches = batches

    def train_dataloader(self) -> DataLoader[Tensor]:
        assert self.trainer is not None
        trainer = self.trainer
        sampler = FromStep(lambda: trainer.global_step, len(self.batches))
        return DataLoader(self.batches, batch_size=None, sampler=sampler)
