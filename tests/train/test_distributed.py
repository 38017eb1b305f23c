"""How training on Ray begins, goes on after losses, and ends; without Ray."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import ray
import torch
from ray.exceptions import ActorDiedError
from ray.train import ControllerError, TrainingFailedError, UserCallback, WorkerGroupError

from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.connection import Worker
from pipelines.host.errors import UserError
from pipelines.train import distributed
from pipelines.train.core.acceleration import ShardedStrategy
from pipelines.train.distributed import explain, fit_on_ray, launch, restart, work
from tests.support.arrivals import arrives
from tests.support.settings import smoke
from tests.support.training import RUN

CALLBACK = UserCallback()
START = SimpleNamespace(segment=SimpleNamespace(last=True), manifest="manifest")


def make_spec(**compute):
    return RunSpec(smoke(*(f"compute.{name}={value}" for name, value in compute.items())), RUN)


@arrives("compute", "strategy")
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_worker_trains_its_share_by_the_strategy_of_the_settings(
    monkeypatch, tmp_path, gpu, sharded
):
    """And reports rows only if somebody listens."""
    device, trained = torch.device("cuda" if gpu else "cpu"), Mock()
    context = Mock(**{"get_world_rank.return_value": 1, "get_world_size.return_value": 2})
    monkeypatch.setattr(ray.train, "get_context", lambda: context)
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: device)
    for name in ("RayDDPStrategy", "RayLightningEnvironment"):
        monkeypatch.setattr(distributed, name, lambda name=name: name)
    monkeypatch.setattr(distributed, "fit_segment", trained)
    monkeypatch.chdir(tmp_path.parent)
    spec = make_spec(workers=2, strategy="fsdp" if sharded else "ddp")
    for report in (True, False):
        work(tmp_path, spec, START, report)
        assert Path.cwd() == tmp_path
        given, process, start, watch = trained.call_args.args
        assert (given, start, watch) == (spec, START, ray.train.report if report else None)
        assert (process.rank, process.world_size) == (1, 2)
        assert process.environment == "RayLightningEnvironment"
        strategy = process.trainer.pop("strategy")
        assert process.trainer == {"accelerator": "gpu" if gpu else "cpu", "devices": "auto"}
        if sharded:
            assert isinstance(strategy, ShardedStrategy) and strategy.root_device == device
        else:
            assert strategy == "RayDDPStrategy"


@pytest.fixture
def losses(monkeypatch):
    """Train with these ends of launches; returns what was called."""

    def train(*ends, **compute):
        called = Mock()
        replaced = ("connect", "check_shared", "await_nodes", "find_start", "launch", "restart")
        for name in replaced:
            monkeypatch.setattr(distributed, name, getattr(called, name))
        segments = [SimpleNamespace(last=end == "last") for end in ends]
        called.find_start.side_effect = [SimpleNamespace(segment=segment) for segment in segments]
        called.launch.side_effect = [end if isinstance(end, Exception) else None for end in ends]
        monkeypatch.setattr(distributed, "explain", str)
        called.spec = make_spec(workers=2, cpus_per_worker=5, gpus_per_worker=1, **compute)
        return called, partial(fit_on_ray, called.spec, "manifest", ["callback"])

    return train


@arrives("compute", "workers cpus_per_worker gpus_per_worker max_failures")
@pytest.mark.parametrize("address", ["", "auto"])
def test_training_goes_on_after_losses_and_ends_with_the_last_segment(
    losses, monkeypatch, capsys, address
):
    """Ray of this machine is started anew, but no cluster; nodes may come back for ten minutes."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    lost = [TrainingFailedError(name) for name in ("lost one", "lost two")]
    called, train = losses(lost[0], "trunk", lost[1], "last", max_failures=2)
    train()
    assert called.launch.call_count == called.find_start.call_count == 4
    spec, start, worker, callbacks = called.launch.call_args.args
    assert (spec, start.segment.last, worker) == (called.spec, True, Worker(5, 1))
    assert callbacks == ["callback"]
    assert called.restart.call_count == (0 if address else 2)
    waits = [call.args for call in called.await_nodes.call_args_list]
    assert waits == [(worker, 2, each) for each in (distributed.PATIENCE, 600.0, 600.0)]
    said = capsys.readouterr().err
    assert f"{RUN}: on Ray, 2 workers of 5 CPUs and 1 GPUs\n" in said
    assert f"{RUN}: lost one (loss 1 of at most 2); going on\n" in said
    assert f"{RUN}: lost two (loss 2 of at most 2); going on\n" in said


def test_a_loss_too_many_ends_training(losses):
    called, train = losses(*map(TrainingFailedError, ("one", "lost")), "last", max_failures=1)
    with pytest.raises(UserError, match=r"lost; this is loss 2, compute\.max_failures is 1$"):
        train()
    assert called.launch.call_count == 2


@pytest.mark.parametrize("gpus", [0.0, 1.0])
@pytest.mark.parametrize("error", [None, TrainingFailedError("lost"), KeyboardInterrupt()])
def test_an_attempt_has_a_folder_of_its_own_and_ends_what_it_began_in_mlflow(
    monkeypatch, tmp_path, gpus, error
):
    """Ray counts no losses itself."""
    monkeypatch.chdir(tmp_path)
    made, opened, tracking = Mock(), Mock(), Mock()
    made.return_value.fit.side_effect = error
    for name, value in {"TorchTrainer": made, "open_journal": opened, "Tracking": tracking}.items():
        monkeypatch.setattr(distributed, name, value)
    spec, worker = make_spec(workers=2), Worker(2.0, gpus)
    storage = spec.resume / "ray"
    for there in (False, True):
        if there:
            storage.mkdir(parents=True)
        if error:
            with pytest.raises(type(error)):
                launch(spec, START, worker, [CALLBACK])
            opened.assert_called_with("manifest", spec.experiment, go_on=True)
            status = "FAILED" if isinstance(error, Exception) else "KILLED"
            tracking.return_value.finish.assert_called_with(status)
        else:
            launch(spec, START, worker, [CALLBACK])
            assert not tracking.called
        assert not storage.exists()
    (call,), given = made.call_args
    assert (call.func, call.args) == (work, (tmp_path, spec, START, True))
    assert given["torch_config"].backend == ("nccl" if gpus else "gloo")
    scaling, run = given["scaling_config"], given["run_config"]
    assert (scaling.num_workers, scaling.use_gpu) == (2, bool(gpus))
    assert scaling.resources_per_worker == worker.resources()
    assert (run.name, run.callbacks) == (RUN, [CALLBACK])
    assert Path(run.storage_path) == storage.resolve()
    failures = run.failure_config
    assert (failures.max_failures, failures.max_preemption_failures) == (0, 0)


@pytest.mark.parametrize("ours", [True, False])
def test_ray_is_started_anew_only_by_who_has_started_it(monkeypatch, ours):
    mode = ray.SCRIPT_MODE if ours else ray.WORKER_MODE
    context = SimpleNamespace(worker=SimpleNamespace(mode=mode))
    ended, begun = Mock(), Mock()
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "shutdown", ended)
    monkeypatch.setattr(distributed, "connect", begun)
    restart()
    assert ended.called == begun.called == ours


def test_lost_workers_and_bugs_are_told_apart():
    """What a worker raises because another one is gone is a loss; any other error is a bug."""
    lost = ActorDiedError()
    closed = RuntimeError(f"[gloo/transport]\nat\n{'x' * 205}. Connection closed by peer")
    bug = RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")
    for failures in ({0: closed}, {1: lost}, {0: bug, 1: lost}):
        assert explain(WorkerGroupError("", failures)).startswith("lost worker")
    assert explain(WorkerGroupError("", {0: closed})) == f"lost worker 0 ({'x' * 200})"
    assert explain(ControllerError(lost)).startswith("lost a worker")
    assert explain(TrainingFailedError("all of them")) == "lost workers (all of them)"
    for failures in ({0: bug}, {0: bug, 1: bug}, {1: KeyError("step")}, {1: KeyError("socket")}):
        with pytest.raises(WorkerGroupError):
            explain(WorkerGroupError("", failures))
    with pytest.raises(UserError, match="disk is full"):
        explain(WorkerGroupError("", {0: closed, 1: UserError("the disk is full")}))
