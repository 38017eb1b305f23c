"""The order of the data is a pure function of (seed, step)."""

from types import SimpleNamespace

import torch

from pipelines.batches import FromStep, StepBatches, stream_seed


class Numbered:
    """Ten windows that hold their own number."""

    def __len__(self):
        return 10

    def batch(self, indices):
        return indices[:, None].expand(-1, 3)


def numbers(batches, steps):
    return [int(x) for step in steps for x in batches[step][:, 0]]


def test_every_window_comes_once_an_epoch_in_a_new_order():
    seen = numbers(StepBatches(Numbered(), 4, 5, seed=0), range(5))
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


def test_a_batch_depends_on_seed_and_step_alone():
    full = numbers(StepBatches(Numbered(), 4, 5, seed=3), range(5))
    assert numbers(StepBatches(Numbered(), 4, 5, seed=3), [4, 3, 2]) == (
        full[16:] + full[12:16] + full[8:12]
    )
    assert numbers(StepBatches(Numbered(), 4, 5, seed=4), range(5)) != full


def test_the_sampler_goes_on_from_the_current_step_but_counts_the_whole_run():
    trainer = SimpleNamespace(global_step=3)
    sampler = FromStep(lambda: trainer.global_step, 5)
    assert list(sampler) == [3, 4]
    assert len(sampler) == 5


def test_no_two_streams_share_a_seed():
    seeds = {stream_seed(s, p, i) for s in range(4) for p in range(3) for i in range(50)}
    assert len(seeds) == 4 * 3 * 50
    torch.Generator().manual_seed(max(seeds))
