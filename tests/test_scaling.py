"""Weak scaling: bytes that torch's own FSDP and DDP send, and arithmetic of the step."""

from contextlib import contextmanager

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from ftmodel.config import ModelConfig
from ftmodel.costs.counting import elements
from ftmodel.costs.scaling import Interconnect, Traffic, step, traffic
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.train.core.acceleration import shard
from tests.train.test_workers import WithLoss

N, VOCABULARY, ACCUMULATE = 4, 29, 2
SMALL = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=32)


@contextmanager
def group():
    """Four workers of which only this one is there: nothing is sent."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=N)
    try:
        yield
    finally:
        distributed.destroy_process_group()


SHARES = {"_allgather_base_": 1, "_reduce_scatter_base_": 1, "allreduce_": 2}


class Sent(TorchDispatchMode):
    """Bytes that a ring sends for the collective operations that are called."""

    def __init__(self):
        super().__init__()
        self.bytes, self.operations = 0.0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name
        if name.startswith("c10d::"):
            share = SHARES[name.removeprefix("c10d::")]
            tensors = [
                t for a in args[:2] for t in (a if isinstance(a, list) else [a])
                if isinstance(t, torch.Tensor)
            ]  # fmt: skip
            self.bytes += share * (N - 1) / N * max(t.nbytes for t in tensors)
            self.operations += 1
        return function(*args, **(kwargs or {}))


def make(changes):
    config = ModelConfig(**SMALL | changes)
    return config, WithLoss(FreeTransformer(config, VOCABULARY))


def step_of(training, config):
    tokens = torch.randint(VOCABULARY, (3, SMALL["context"] + 1))
    noise = torch.rand(3, SMALL["context"], config.latent_bits) if config.latent_bits else None
    training(tokens, noise, None, 0.1).total.backward()


CHANGES = [
    {"tied": False},
    {"latent_bits": 8},
    {"latent_bits": 8, "latent": {"encoder": "separate"}},
    {"latent_bits": 8, "latent": {"inject": "memory", "map": "linear", "prior": "recurrent"}},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_fsdp_sends_what_is_counted(changes):
    """Within 1 %: FSDP pads matrices that it cannot share out evenly."""
    with group(), Sent() as sent:
        config, training = make(changes)
        shard(training.model, init_device_mesh("cpu", (N,)))
        sent.bytes = sent.operations = 0
        for _ in range(ACCUMULATE):
            step_of(training, config)
    counted = traffic(config, VOCABULARY, N, True, ACCUMULATE)
    assert sent.bytes == pytest.approx(counted.bytes, rel=0.01)
    assert counted.hops == sent.operations * (N - 1)
    assert traffic(config, VOCABULARY, 1, True, ACCUMULATE) == Traffic(0, 0)


def test_ddp_reduces_every_gradient_once_a_step():
    (config, training), reduced = make({"latent_bits": 8}), []

    def hook(_state, bucket):
        reduced.append(bucket.buffer().nbytes)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with group():
        replica = DistributedDataParallel(training)
        replica.register_comm_hook(None, hook)
        step_of(replica, config)
    counted = traffic(config, VOCABULARY, N, False, ACCUMULATE)
    assert counted.bytes == 2 * (N - 1) / N * sum(reduced)
    assert traffic(config, VOCABULARY, 1, False, ACCUMULATE) == Traffic(0, 0)


def test_ddp_reduces_buckets_of_25_mib_by_trees():
    """A matrix of embeddings fills one to the last byte, or has a row too many."""
    config = ModelConfig(**SMALL)
    rest = elements(FreeTransformer(config, 1)) - config.d_model
    rows = (25 * 2**20 // 4 - rest) // config.d_model
    assert 4 * (rows * config.d_model + rest) == 25 * 2**20
    hops = [traffic(config, n, 8, False, ACCUMULATE).hops for n in (rows, rows + 1)]
    assert hops == [2 * 3, 2 * 2 * 3]


JOINED = Interconnect(nvlink=400.0, network=25.0, per_node=8, latency=0.5, overlap=0.75)


@pytest.mark.parametrize(
    ("sharded", "compute", "exposed"),
    [
        (True, 100.0, 5.0),  # a quarter of 20
        (True, 10.0, 10.0),  # more than what is computed
        (False, 24.0, 12.0),  # the backward pass of one of two micro-batches: 8
    ],
)
def test_what_computation_cannot_hide_is_waited_for(sharded, compute, exposed):
    sent = Traffic(bytes=3600.0, hops=4)  # 3600 / 200 + 4 / 2 seconds
    assert [JOINED.bandwidth(n) for n in (2, 8, 9, 256)] == [400, 400, 200, 200]
    taken = step(compute, sent, 16, JOINED, sharded, accumulate=2)
    assert (taken.transfer, taken.exposed) == (20, exposed)
    assert taken.efficiency == compute / (compute + exposed)
