"""Training on a real Ray cluster of two CPU nodes: the same figures, through losses and errors."""

import os
import shutil
import socket
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
import torch
import yaml
from ray.exceptions import ActorDiedError
from ray.train import ControllerError, WorkerGroupError
from ray.util.placement_group import placement_group, remove_placement_group

from ftmodel.model.latent_design import FreeBits
from pipelines.cluster import connection as cluster
from pipelines.cluster.connection import check_shared, connect
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.schema import Strategy
from pipelines.train import distributed
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.batches import StepBatches
from pipelines.train.core.publish import publish
from pipelines.train.distributed import explain, fit_on_ray
from tests.support.training import RUN, check_close, losses, outcome, same, tracked_runs, train_run
from tests.support.workspace import enter
from tests.train.test_budgets import change, published

KEPT = 10  # the step of the one checkpoint that a run of 20 steps on Ray writes on its way
STOPPED = "stopped here"


@pytest.fixture
def joined(two_nodes, workspace, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)
    connect()
    return two_nodes


@pytest.fixture(scope="module")
def one(tokenized, tmp_path_factory):
    """Outcome of RUN in one process."""
    with pytest.MonkeyPatch.context() as patch:
        enter(tokenized, tmp_path_factory.mktemp("one"), patch)
        return train_run()


@pytest.fixture(scope="module")
def two(tokenized, two_nodes, tmp_path_factory):
    """Outcome of RUN on two workers of Ray that nobody disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        enter(tokenized, tmp_path_factory.mktemp("two"), patch)
        patch.setenv("RAY_ADDRESS", two_nodes.address)
        return train_on_ray(workers=2)


def train_on_ray(name=RUN, **compute):
    experiment = load_experiment()
    for key, value in compute.items():
        setattr(experiment.compute, key, value)
    fit_on_ray(experiment, name)
    publish(experiment, name)
    return outcome(name)


def life(what, step, *arguments):
    """What a worker does instead of ``distributed.work``: the same, with ``what`` after a step.

    Defined here and nested, as workers do not have the tests' modules.
    """

    def work(config):
        import ray.train

        from pipelines.train import distributed
        from pipelines.train.core import checkpoint_callback
        from pipelines.train.core import trainer as fit

        fit.CHECKPOINT_SECONDS = 0.0
        inherited = checkpoint_callback.Checkpoints.on_step
        rank = ray.train.get_context().get_world_rank()

        def on_step(self, trainer):
            inherited(self, trainer)
            if trainer.global_step == step:
                what(rank, self, trainer, *arguments)

        checkpoint_callback.Checkpoints.on_step = on_step
        distributed.work(config)

    return work


def make_stop():
    def stop(rank, checkpoints, trainer):
        from pipelines.common.errors import UserError

        checkpoints.save(trainer)
        raise UserError("stopped here")

    return stop


def make_die_once():
    def die(rank, checkpoints, trainer):
        import os
        import signal
        from pathlib import Path

        mark = Path(f"died-at-{trainer.global_step}")
        if rank == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def make_wait_once():
    def wait(rank, checkpoints, trainer, node, pipe):
        import signal
        from pathlib import Path

        import ray

        if ray.get_runtime_context().get_node_id() == node:
            Path(pipe).write_text("here")
            signal.pause()

    return wait


def stop_on_ray(monkeypatch, step, **compute):
    with monkeypatch.context() as patch:
        patch.setattr(distributed, "work", life(make_stop(), step))
        with pytest.raises(UserError, match=STOPPED):
            train_on_ray(**compute)


def newest():
    return max(Path("resume/smoke", RUN).glob("*.ckpt"))


@pytest.mark.cluster
def test_two_workers_have_the_curve_of_one_process(one, two):
    check_close(two[1], one[1])


@pytest.mark.parametrize("name", ["baseline", RUN])
@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.cluster
def test_neither_strategy_nor_micro_batches_change_curve_or_weights(joined, name, strategy):
    weights, rows = train_on_ray(name, workers=2, strategy=strategy, accumulate=2)
    shutil.rmtree("resume")
    expected = train_run(name)
    check_close(rows, expected[1])
    assert weights.keys() == expected[0].keys()
    for key, value in expected[0].items():
        assert torch.allclose(weights[key], value, rtol=1e-3, atol=1e-4), key


@pytest.mark.parametrize("over", [FreeBits.batch, FreeBits.position])
@pytest.mark.cluster
def test_a_hinge_of_the_whole_batch_is_that_of_one_process(joined, over):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["runs"][RUN]["latent"]["free_bits"] = str(over)
    Path("params.yaml").write_text(yaml.safe_dump(params))
    weights, rows = train_on_ray(workers=2)
    shutil.rmtree("resume")
    expected = train_run()
    check_close(rows, expected[1])
    for key, value in expected[0].items():
        assert torch.allclose(weights[key], value, rtol=1e-3, atol=1e-4), key


@pytest.mark.cluster
def test_a_checkpoint_in_parts_goes_on_in_one_process(joined, monkeypatch, one):
    stop_on_ray(monkeypatch, KEPT, workers=2, strategy=Strategy.fsdp)
    assert newest().is_dir() and int(newest().stem) == KEPT
    check_close(train_run()[1], one[1])


@pytest.mark.cluster
def test_a_checkpoint_of_one_process_goes_on_in_parts_of_any_number(joined, monkeypatch, one):
    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
        stop = make_stop()
        patch.setattr(
            fit_module.Checkpoints,
            "on_step",
            lambda self, trainer: trainer.global_step == 5 and stop(0, self, trainer),
        )
        with pytest.raises(UserError, match=STOPPED):
            train_run()
    assert newest().is_file() and int(newest().stem) == 5
    stop_on_ray(monkeypatch, KEPT, workers=4, strategy=Strategy.fsdp)
    assert len(list(newest().iterdir())) == 4
    _, rows = train_on_ray(workers=2, strategy=Strategy.fsdp)
    check_close(rows, one[1])


@pytest.mark.cluster
def test_a_checkpoint_in_parts_that_is_damaged_or_not_whole_is_passed_over(
    joined, monkeypatch, one, capsys
):
    stop_on_ray(monkeypatch, 5, workers=2, strategy=Strategy.fsdp)
    stop_on_ray(monkeypatch, KEPT, workers=2, strategy=Strategy.fsdp)
    damaged = newest()
    part = sorted(damaged.iterdir())[1]
    part.write_bytes(part.read_bytes()[:1000])
    assert int(distributed.find_start(load_experiment(), RUN).checkpoint.stem) == 5
    damaged.with_suffix(".unreadable").rename(damaged)
    part.unlink()
    assert int(distributed.find_start(load_experiment(), RUN).checkpoint.stem) == 5
    assert "trying the one before it" in capsys.readouterr().out
    check_close(train_run()[1], one[1])


@pytest.mark.cluster
def test_every_segment_of_a_run_with_budgets_is_that_of_one_process(joined):
    """Decays off a trunk whose checkpoints lie in parts; budgets kept whole."""
    change(schedule="wsd")
    _, rows = train_on_ray(workers=2, strategy=Strategy.fsdp)
    budgets = published()
    shutil.rmtree("resume")
    shutil.rmtree("checkpoints")
    check_close(rows, train_run()[1])
    for tokens, expected in published().items():
        for name, value in expected.items():
            assert torch.allclose(budgets[tokens][name], value, rtol=1e-3, atol=1e-4), name


@pytest.mark.cluster
def test_a_killed_worker_costs_only_the_steps_since_the_last_checkpoint(
    joined, monkeypatch, two, capsys
):
    monkeypatch.setattr(distributed, "work", life(make_die_once(), 5))
    with pytest.raises(UserError, match=r"lost worker.*loss 1, compute.max_failures is 0"):
        train_on_ray(workers=2, max_failures=0)
    assert [run.info.status for run in tracked_runs()[1]] == ["FAILED"]
    monkeypatch.setattr(distributed, "work", life(make_die_once(), KEPT + 2))
    weights, rows = train_on_ray(workers=2, max_failures=1)
    said = capsys.readouterr().err
    assert "loss 1 of at most 1" in said
    assert same(weights, two[0])
    assert losses(rows) == losses(two[1])
    client, (run,) = tracked_runs()
    points = client.get_metric_history(run.info.run_id, "train/ce_nats")
    assert [point.step for point in points] == list(range(1, 21))
    assert run.info.status == "FINISHED"


@pytest.mark.cluster
def test_a_removed_node_is_outlived_when_another_comes(joined, monkeypatch, two, capsys):
    """One worker on each node, as the rest of both is taken."""
    os.mkfifo("pipe")
    taken = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    ray.get(taken.ready())
    monkeypatch.setattr(
        distributed,
        "work",
        life(make_wait_once(), KEPT + 2, joined.second.node_id, str(Path("pipe").resolve())),
    )
    results = []
    training = threading.Thread(target=lambda: results.append(train_on_ray(workers=2)))
    training.start()
    try:
        assert Path("pipe").read_text() == "here"
        joined.cluster.remove_node(joined.second, allow_graceful=False)
        joined.second = joined.cluster.add_node(num_cpus=2)  # only the main thread can
        training.join()
    finally:
        remove_placement_group(taken)
    assert "loss 1 of at most 3" in capsys.readouterr().err
    assert same(results[0][0], two[0])
    assert losses(results[0][1]) == losses(two[1])


@pytest.mark.cluster
def test_a_gradient_that_is_not_finite_is_one_line_with_the_windows_of_all_workers(
    joined, monkeypatch
):
    def work(config):
        from pipelines.train import distributed
        from pipelines.train.core import module

        inherited = module.training_loss

        def poisoned(model, *arguments):
            loss = inherited(model, *arguments)
            poisoned.calls += 1
            loss.total = loss.total * (float("nan") if poisoned.calls == 3 else 1)
            return loss

        poisoned.calls = 0
        module.training_loss = poisoned
        distributed.work(config)

    monkeypatch.setattr(distributed, "work", work)
    with pytest.raises(UserError, match="not finite at step 3") as caught:
        train_on_ray(workers=2)
    experiment = load_experiment()
    run = experiment.runs[RUN]
    shards = fit_module.Shards(Path("data/tokens") / run.data)
    windows = shards.windows("train", experiment.model_config(run).context)
    whole = StepBatches(windows, 8, 20, run.seed)
    assert str(whole[2]["windows"].tolist()) in str(caught.value)


@pytest.mark.cluster
def test_more_workers_than_the_cluster_has_is_one_line(joined, monkeypatch):
    monkeypatch.setattr(distributed, "PATIENCE", 0.0)
    with pytest.raises(UserError, match=r"compute.workers: 8.*room for 4: 4 CPUs and 0 GPUs"):
        train_on_ray(workers=8)
    with pytest.raises(UserError, match=r"of 1 CPUs and 1 GPUs each.*room for 0"):
        train_on_ray(workers=2, gpus_per_worker=1.0)


@pytest.mark.cluster
def test_a_folder_that_not_all_nodes_share_is_one_line(joined, tmp_path, monkeypatch):
    check_shared(tmp_path)
    elsewhere = nullcontext(SimpleNamespace(name=str(tmp_path / "written on another disk")))
    monkeypatch.setattr(cluster, "NamedTemporaryFile", lambda dir: elsewhere)
    with pytest.raises(UserError, match="must lie on storage that all nodes share"):
        check_shared(tmp_path)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:{free}", "no Ray cluster answers there"),
        ("http://127.0.0.1:8265", "host:port"),
        ("ray://127.0.0.1:10001", "host:port"),
        ("nonsense", "host:port"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(workspace, monkeypatch, address, words):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", address.format(free=free.getsockname()[1]))
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(UserError, match=f"RAY_ADDRESS=.*{words}"):
            connect()


def test_lost_workers_and_bugs_are_told_apart():
    """What a worker raises because another one is gone is a loss; any other error is a bug."""
    lost = ActorDiedError()
    closed = RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")
    bug = RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")
    for failures in ({0: closed}, {1: lost}, {0: bug, 1: lost}):
        assert explain(WorkerGroupError("", failures)).startswith("lost worker")
    assert explain(ControllerError(lost)).startswith("lost a worker")
    for failures in ({0: bug}, {0: bug, 1: bug}, {1: KeyError("step")}):
        with pytest.raises(WorkerGroupError):
            explain(WorkerGroupError("", failures))
    with pytest.raises(UserError, match="disk is full"):
        explain(WorkerGroupError("", {0: closed, 1: UserError("the disk is full")}))
