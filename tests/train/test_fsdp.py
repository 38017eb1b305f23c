"""A sharded model of a single worker: what is sharded, and that its checkpoints are anyone's."""

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.train.core import trainer
from pipelines.train.core.acceleration import ShardedStrategy, blocks_of, cut, gathered, shard
from pipelines.train.core.trainer import Process
from tests.support.kills import killed
from tests.support.training import RUN, check_close, outcome, train


@pytest.fixture
def mesh(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    # else Lightning takes a thread for each core, also for all tests after this one
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_each_block_is_a_unit_and_what_is_left_is_one_more(make_model, mesh):
    """However often it is asked for."""
    model = make_model()
    for _ in range(2):
        shard(model, mesh)
        assert all(isinstance(unit, FSDPModule) for unit in (model, *blocks_of(model)))
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())


@pytest.mark.parametrize("keep", [True, False])
def test_tensors_that_are_shared_out_are_put_together_for_those_who_keep_them(mesh, keep):
    whole = torch.arange(6.0)
    part = distribute_tensor(whole, mesh, [Shard(0)])
    found = gathered({"states": [{"moment": part}, 3], "plain": whole}, keep)
    moment = found["states"][0].pop("moment")
    assert (type(moment) is torch.Tensor and torch.equal(moment, whole)) if keep else moment is None
    assert found["states"] == [{}, 3] and found["plain"] is whole


def test_a_tensor_is_shared_out_as_one_of_its_shape_is(mesh):
    """A step's number is not, and nothing is where nothing is shared out."""
    tensor = torch.arange(6.0)
    like = distribute_tensor(torch.zeros(6), mesh, [Shard(0)])
    part = cut(tensor, like)
    assert isinstance(part, DTensor) and part.placements == like.placements
    assert torch.equal(part.full_tensor(), tensor)
    for whole, other in ((torch.tensor(3.0), like), (tensor, torch.zeros(6))):
        own = cut(whole, other)
        assert type(own) is torch.Tensor and torch.equal(own, whole)
        assert own.data_ptr() != whole.data_ptr()


@pytest.mark.usefixtures("workspace", "mesh")
def test_a_sharded_run_of_one_worker_goes_on_as_one_that_is_not_sharded(trained):
    def fit(spec, manifest):
        strategy = ShardedStrategy(torch.device("cpu"), 1)
        settings = {"accelerator": "cpu", "devices": 1, "strategy": strategy}
        trainer.fit(spec, manifest, Process(trainer=settings))

    spec = RunSpec(load_experiment(), RUN)
    with killed(7):
        train(spec, fit)
    train(spec, fit)
    weights, rows = outcome()
    check_close(rows, trained.rows)
    for name, expected in trained.weights.items():
        torch.testing.assert_close(weights[name], expected, rtol=1e-3, atol=1e-4)
