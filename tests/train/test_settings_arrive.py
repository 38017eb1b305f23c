"""Settings of `compute` reach what they are for: Lightning, the compiler, threads, Ray Train."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import ray.train
import torch
from ray.train import TrainingFailedError
from ray.train.lightning import RayDDPStrategy

from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster import connection, dispatch
from pipelines.cluster.connection import Worker
from pipelines.common.errors import UserError
from pipelines.train import distributed, held_out, stage
from pipelines.train.core import trainer
from pipelines.train.core.batches import Share
from pipelines.train.core.fsdp import ShardedStrategy
from pipelines.train.core.segments import segments
from pipelines.train.core.trainer import Process, SegmentTraining
from tests.support.arrivals import arrives
from tests.support.settings import composed_by_hydra
from tests.support.training import RUN

OPTIM = "models.target_small.optim"


def spec_of(*overrides):
    return RunSpec(composed_by_hydra("experiment=smoke", *overrides), RUN)


@arrives("compute", "precision accumulate")
@arrives("optim", "batch_size")
def test_lightning_is_told_the_precision_and_everybody_the_micro_batches(monkeypatch):
    """Which the loop counts, and the batches are cut into; of 12 rows, on two workers."""
    monkeypatch.setattr(trainer.L, "Trainer", lambda **told: told)
    settings = f"{OPTIM}.batch_size=12 compute.accumulate=2 compute.precision=bf16"
    start = SimpleNamespace(manifest=SimpleNamespace(resume=Path()), segment=Mock(), step=0)
    training = SegmentTraining(spec_of(*settings.split()), Process(1, 2), start, None)
    told = training.build_trainer([])
    assert (told["precision"], told["accumulate_grad_batches"]) == ("bf16-mixed", 2)
    batches = training.build_batches(Mock()).dataset
    assert (batches.batch_size, batches.share) == (12, Share(1, 2, 2))


@pytest.fixture
def called(monkeypatch):
    """What the stage calls, in place of training."""
    calls = Mock()
    monkeypatch.setattr(dispatch, "set_threads", calls.set_threads)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for name in ("check_compile", "check_ray", "make_manifest", "fit", "publish"):
        monkeypatch.setattr(stage, name, getattr(calls, name))
    monkeypatch.setattr(stage, "alone", lambda _: nullcontext())
    monkeypatch.setattr(distributed, "fit_on_ray", calls.fit_on_ray)
    monkeypatch.setattr(RunSpec, "shards", Mock())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return calls


def train(monkeypatch, *overrides):
    frozen = SimpleNamespace(experiment=spec_of(*overrides).experiment, check=Mock())
    monkeypatch.setattr(stage, "freeze", lambda *_: frozen)
    stage.main(RUN)


@arrives("compute", "threads compile workers gpus_per_worker")
def test_one_process_has_its_threads_and_compiler_and_several_workers_are_on_ray(
    monkeypatch, called
):
    train(monkeypatch, "compute.threads=3", "compute.compile=true")
    called.set_threads.assert_called_once_with(3)
    called.check_compile.assert_called_once_with(True)
    assert called.fit.called and not called.fit_on_ray.called
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    called.check_compile.side_effect = lambda _: seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    seen = []
    train(monkeypatch, "compute.gpus_per_worker=0")
    assert seen == [""], "hidden before anything asks for them"
    called.reset_mock(side_effect=True)
    train(monkeypatch, "compute.workers=2", "compute.compile=true")
    assert called.fit_on_ray.called and not (called.fit.called or called.check_compile.called)


@arrives("compute", "threads cpus_per_worker gpus_per_worker")
def test_other_stages_have_the_threads_here_and_the_resources_of_a_worker_there(monkeypatch):
    settings = "compute.threads=3 compute.cpus_per_worker=5 compute.gpus_per_worker=0.25"
    experiment, done, workers = spec_of(*settings.split()).experiment, Mock(), []
    threads = Mock()
    monkeypatch.setattr(dispatch, "set_threads", threads)
    monkeypatch.setattr(connection, "connect", Mock())
    monkeypatch.setattr(
        connection, "caller", lambda worker: workers.append(worker) or (lambda task: task())
    )
    for address in ("", "10.0.0.1:6379"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        dispatch.here_or_on_a_worker(experiment, done)
    threads.assert_called_once_with(3)
    assert workers == [Worker(5, 0.25)] and done.call_count == 2


@arrives("optim", "schedule decay")
@pytest.mark.parametrize(("schedule", "trunks"), [("wsd", [6, 20]), ("cosine", [20])])
def test_budgets_branch_off_where_their_decay_begins(schedule, trunks):
    """Under wsd; the last two fifths of 10 steps."""
    spec = spec_of(
        *(f"{OPTIM}.schedule={schedule}", f"{OPTIM}.decay=0.4", f"runs.{RUN}.budgets=[5200]")
    )
    assert [each.trunk for each in segments(spec)] == trunks
    assert [each.annealed for each in spec.budgets] == [schedule == "wsd", True]


@arrives("compute", "workers cpus_per_worker gpus_per_worker max_failures")
def test_ray_train_has_the_workers_and_their_resources_until_too_many_are_lost(monkeypatch, capsys):
    """Two losses of at most one; also the room that is waited for is that of all workers."""
    made, awaited = [], []
    settings = "workers=4 cpus_per_worker=5 gpus_per_worker=1 max_failures=1"
    spec = spec_of(*(f"compute.{each}" for each in settings.split()))

    def lose(work, *, scaling_config, **_):
        made.append(scaling_config)
        return Mock(fit=Mock(side_effect=TrainingFailedError("gone")))

    for name in ("connect", "check_shared", "find_start", "open_journal", "Tracking"):
        monkeypatch.setattr(distributed, name, Mock())
    monkeypatch.setattr(distributed, "await_nodes", lambda *asked: awaited.append(asked))
    monkeypatch.setattr(distributed, "TorchTrainer", lose)
    monkeypatch.setattr(distributed, "explain", lambda _: "lost")
    monkeypatch.setenv("RAY_ADDRESS", "there")
    with pytest.raises(UserError, match=r"this is loss 2, compute\.max_failures is 1"):
        distributed.fit_on_ray(spec, Mock())
    assert [(each.num_workers, each.use_gpu) for each in made] == [(4, True)] * 2
    said = capsys.readouterr().err
    assert "on Ray, 4 workers of 5 CPUs" in said and "loss 1 of at most 1" in said
    assert made[0].resources_per_worker == {"CPU": 5, "GPU": 1}
    patience = distributed.PATIENCE, distributed.PATIENCE_AFTER_LOSS
    assert awaited == [(Worker(5, 1), 4, each) for each in patience]


@arrives("compute", "strategy")
@pytest.mark.parametrize(("strategy", "kind"), [("ddp", RayDDPStrategy), ("fsdp", ShardedStrategy)])
def test_a_worker_shares_the_model_by_the_strategy(monkeypatch, tmp_path, strategy, kind):
    fit = Mock()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(distributed, "fit_segment", fit)
    monkeypatch.setattr(ray.train, "get_context", Mock(return_value=Mock(
        get_world_rank=lambda: 1, get_world_size=lambda: 2
    )))  # fmt: skip
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: torch.device("cpu"))
    spec = spec_of("compute.workers=2", f"compute.strategy={strategy}")
    distributed.work(tmp_path, spec, Mock(), report=False)
    process = fit.call_args.args[1]
    assert type(process.trainer["strategy"]) is kind and process.world_size == 2


@arrives("evaluation", "every_tokens")
def test_held_out_windows_are_scored_as_often_as_the_settings_say(monkeypatch):
    """However many tokens an evaluation scores at once: a training goes on with the same noise."""
    part = Mock()
    monkeypatch.setattr(held_out, "fixed_part", part)
    spec = spec_of("evaluation.every_tokens=2600", "evaluation.batch_tokens=130")
    (segment,), shards = segments(spec), Mock()
    start = SimpleNamespace(manifest=Mock(), segment=segment, step=0)
    first, *_ = SegmentTraining(spec, Process(), start, None).build_callbacks(shards)
    part.assert_called_once_with(spec, shards, 2600)
    assert (first.every, first.rows) == (2600 // 520, 4096 // 65)
