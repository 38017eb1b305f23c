"""Random streams: none twice, whatever they are for; those of training are as they ever were."""

import numpy as np
import pytest
import torch

from pipelines.common.rng_streams import Purpose, generator, philox, philox_at, stream_seed
from pipelines.train.core.batches import latent_noise
from tests.support.mutants import rejects

SEEDS = INDICES = range(4)


@rejects("rng_streams.key: «→ % 3», index) assert", "evaluation on the streams of training")
def test_no_two_streams_coincide():
    """Of all purposes, seeds and indices, and the corpora's own, which begin with a bare seed."""
    streams = [generator(s, p, i) for s in SEEDS for p in Purpose for i in INDICES]
    streams += [torch.Generator().manual_seed(seed) for seed in SEEDS]
    drawn = {tuple(torch.randint(1 << 30, (4,), generator=g).tolist()) for g in streams}
    assert len(drawn) == len(streams)
    counted = [philox(s, p, i, j) for s in SEEDS for p in Purpose for i in INDICES for j in INDICES]
    numbers = {tuple(stream.integers(1 << 60, size=2).tolist()) for stream in counted}
    assert len(numbers) == len(counted)


@rejects('rng_streams.philox_at: «= state→["state"]["counter"][1] = second»', "noise that goes on")
def test_a_generator_that_is_moved_draws_as_new_ones_do():
    """Whatever of its block of numbers was left at the last place."""
    for second, moved in zip(
        (5, 6, 6, 0), philox_at(3, Purpose.NOISE, 7, (5, 6, 6, 0)), strict=True
    ):
        new = philox(3, Purpose.NOISE, 7, second)
        for n in (1, 4, 7):
            drawn = moved.random(n, dtype=np.float32)
            assert drawn.tolist() == new.random(n, dtype=np.float32).tolist()


def test_training_draws_what_it_drew_before_evaluation_had_streams():
    """So that what was measured then can be measured again."""
    words = np.random.SeedSequence((3, 1)).generate_state(2, np.uint64)
    philox = np.random.Generator(np.random.Philox(key=words, counter=[0, 5, 7, 0]))
    expected = philox.random((2, 4), dtype=np.float32)
    assert latent_noise(3, 7, range(5, 6), 2, 4)[0].tolist() == expected.tolist()
    order = np.random.SeedSequence((3, 0, 2)).generate_state(1, np.uint64)[0] >> 1
    assert stream_seed(3, Purpose.ORDER, 2) == order


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_is_one_word(seed):
    """NumPy would take more words for it, and (2^32, p, i) for (0, 1, p, i)."""
    with pytest.raises(AssertionError):
        stream_seed(seed, Purpose.ORDER)
    stream_seed((1 << 32) - 1, Purpose.ORDER)
