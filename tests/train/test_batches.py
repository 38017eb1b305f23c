"""Data order and latent noise are pure functions of seed, step and row of the batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.rng_streams import Purpose, generator, philox
from pipelines.train.core import batches
from pipelines.train.core.batches import FromStep, Share, StepBatches
from pipelines.train.core.trainer import Process, SegmentTraining
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import smoke
from tests.support.training import RUN


class Numbered:
    def __len__(self):
        return 10

    def batch(self, indices):
        return indices[:, None].expand(-1, 3)


START = SimpleNamespace(step=3)


def numbers(batches, steps):
    return [int(x) for step in steps for x in batches[step]["tokens"][:, 0]]


@rejects("StepBatches.__init__: , «epoch→0»", "one order for all epochs")
def test_every_window_comes_once_an_epoch_in_a_new_order():
    seen = numbers(StepBatches(Numbered(), 4, 5, seed=0), range(5))
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    for epoch in range(2):
        drawn = torch.randperm(10, generator=generator(0, Purpose.ORDER, epoch))
        assert seen[10 * epoch :][:10] == drawn.tolist()
    assert seen[:10] != seen[10:]


def test_the_order_of_one_epoch_is_kept(monkeypatch):
    """Drawn once, as long as its windows are read: all orders would take much memory."""
    drawn = []
    monkeypatch.setattr(batches, "order", lambda n, *rest: drawn.append(rest) or np.arange(n))
    numbers(StepBatches(Numbered(), 4, 5, seed=3), [0, 1, 2, 3, 4, 0])
    assert drawn == [(3, 0), (3, 1), (3, 0)]


@rejects("StepBatches.__init__: ), «seed→0»", "one order for all seeds")
def test_a_batch_depends_on_seed_and_step_alone():
    full = numbers(StepBatches(Numbered(), 4, 5, seed=3), range(5))
    assert numbers(StepBatches(Numbered(), 4, 5, seed=3), [4, 3, 2]) == (
        full[16:] + full[12:16] + full[8:12]
    )
    assert numbers(StepBatches(Numbered(), 4, 5, seed=4), range(5)) != full


def test_the_sampler_goes_on_from_a_step_but_counts_the_whole_run():
    sampler = FromStep(3, StepBatches(Numbered(), 4, 5, seed=0, share=Share(accumulate=2)))
    assert list(sampler) == [6, 7, 8, 9]
    assert len(sampler) == 10


@rejects("batches.latent_noise: , «rows→range(len(rows))»)", "the same noise for every worker")
@pytest.mark.parametrize(("workers", "accumulate"), [(1, 2), (2, 1), (2, 2)])
def test_workers_and_micro_batches_share_a_batch_without_changing_it(workers, accumulate):
    """Together they read the same rows, each with the same noise, as one worker does at once."""
    whole = StepBatches(Numbered(), 4, 3, seed=1, noise_width=5)[2]
    shares = [Share(worker, workers, accumulate) for worker in range(workers)]
    each = [StepBatches(Numbered(), 4, 3, seed=1, noise_width=5, share=share) for share in shares]
    parts = [batches[2 * accumulate + i] for i in range(accumulate) for batches in each]
    for key in ("tokens", "windows", "noise"):
        assert torch.equal(torch.cat([part[key] for part in parts]), whole[key])


@arrives("compute", "accumulate")
@arrives("optim", "batch_size")
@arrives("run", "seed")
@rejects("SegmentTraining.build_batches: «process.rank→0»", "all workers train on the same rows")
@rejects(
    "SegmentTraining.build_batches: «self.start.step→0»", "a resumed run sees old batches again"
)
@rejects('SegmentTraining.build_batches: "«train→validation»', "training on the validation part")
def test_a_process_trains_on_its_share_of_the_training_windows_from_its_step_on():
    asked = []

    def windows(split, context):
        asked.append((split, context))
        return Numbered()

    settings = [f"runs.{RUN}.seed=1", "models.target_small.optim.batch_size=12"]
    spec = RunSpec(smoke(*settings, "compute.accumulate=2"), RUN)
    whole = StepBatches(Numbered(), 12, spec.steps, 1, noise_width=spec.config.latent_bits)[3]
    for rank, rows in ((0, slice(0, 3)), (1, slice(3, 6))):
        process = SegmentTraining(spec, Process(rank, 2), START, None)
        part = next(iter(process.build_batches(SimpleNamespace(windows=windows))))
        for key in ("tokens", "windows", "noise"):
            assert torch.equal(part[key], whole[key][rows])
    assert {*asked} == {("train", spec.config.context)}


@rejects("StepBatches.__getitem__: , «step→0»", "the same noise at every step")
def test_each_step_and_seed_has_noise_of_its_own():
    drawn = [
        StepBatches(Numbered(), 4, 3, seed=seed, noise_width=5)[step]["noise"]
        for seed in (0, 1)
        for step in range(3)
    ]
    assert len({tuple(noise.flatten().tolist()) for noise in drawn}) == len(drawn)


@rejects("batches.latent_noise: «NOISE→ORDER»", "noise from the stream of the data's order")
def test_noise_has_a_stream_of_its_own():
    """Of z and of random prefixes."""
    expected = philox(1, Purpose.NOISE, 2, 3).random((2, 5), np.float32)
    noise = StepBatches(Numbered(), 4, 3, seed=1, noise_width=5)[2]["noise"]
    assert torch.equal(noise[3], torch.from_numpy(expected)) and len(noise.unique(dim=0)) == 4
