"""A real Ray cluster of two CPU nodes, of which one dies: the same figures."""

import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group

from pipelines.cluster import connection
from pipelines.cluster.connection import connect
from pipelines.cluster.workers import run_tasks
from pipelines.config.data import Files, TextData
from pipelines.data import sources
from pipelines.data.build import make_text
from pipelines.host.errors import UserError
from pipelines.train import distributed
from tests.cluster.conftest import train_on_ray
from tests.support.training import losses, same, tracked_runs


@pytest.fixture
def joined(two, two_nodes, workspace, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)
    connect()
    return two_nodes


def make_work(node, pipe):
    """What workers do instead of ``distributed.work``: after step 12 the one on ``node`` waits for
    that to go. Nested, as workers lack the tests' modules.
    """

    def work(root, spec, start, report):
        import signal
        from pathlib import Path

        import ray

        from pipelines.train import distributed
        from pipelines.train.core import trainer as fit
        from pipelines.train.core.callbacks import Checkpoints

        fit.CHECKPOINT_SECONDS = 0.0  # with several workers: at step 10
        inherited = Checkpoints.on_step

        def on_step(self, trainer):
            inherited(self, trainer)
            here = ray.get_runtime_context().get_node_id()
            if trainer.global_step == 12 and here == node:
                Path(pipe).write_text("here")
                signal.pause()

        Checkpoints.on_step = on_step
        distributed.work(root, spec, start, report)

    return work


@pytest.mark.cluster
def test_a_removed_node_is_outlived(two, joined, monkeypatch, capsys):
    """One worker on each node, as the rest of both is taken."""
    os.mkfifo("pipe")
    taken = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    ray.get(taken.ready())
    work = make_work(joined.second.node_id, str(Path("pipe").resolve()))
    monkeypatch.setattr(distributed, "work", work)
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
    said = capsys.readouterr().err
    assert "loss 1 of at most 3" in said and "loss 2" not in said
    [(weights, rows)] = results
    assert same(weights, two[0])
    assert losses(rows) == losses(two[1])
    client, (run,) = tracked_runs()
    points = client.get_metric_history(run.info.run_id, "curve/ce_nats")
    assert [point.step for point in points] == list(range(1, 21))
    assert run.info.status == "FINISHED"


@pytest.mark.cluster
def test_data_are_made_on_the_cluster_and_lost_tasks_are_repeated(joined, tmp_path, monkeypatch):
    def dying_once(path):
        """Nested, as above."""
        import os

        if not os.path.exists(path):
            open(path, "w").close()
            os.kill(os.getpid(), 9)
        return [path]

    paths = [str(tmp_path / name) for name in "abc"]
    assert sorted(run_tasks(dying_once, paths, cores=1)) == [(path, path) for path in paths]
    monkeypatch.setattr(sources, "GROUP_BYTES", 1)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"text {number % 3}")
    parts = {"a": Files(root=str(tmp_path), pattern="*.txt")}
    data = TextData(parts=parts, validation_share=0.4, vocab_size=300)
    make_text("x", data, tmp_path / "there")
    monkeypatch.delenv("RAY_ADDRESS")
    make_text("x", data, tmp_path / "here")
    there, here = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("there", "here")
    )
    assert there == here


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:{free}", "no Ray cluster answers there"),
        ("http://127.0.0.1:8265", "host:port"),
        (":6379", "host:port"),
        ("host:port", "host:port"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(monkeypatch, address, words):
    ready = grpc.channel_ready_future
    monkeypatch.setattr(
        connection.grpc,
        "channel_ready_future",
        lambda channel: SimpleNamespace(result=lambda timeout: ready(channel).result(0.1)),
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", address.format(free=free.getsockname()[1]))
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(UserError, match=f"RAY_ADDRESS=.*{words}"):
            connect()


def test_ray_that_does_not_start_in_time_is_started_again(monkeypatch):
    starts = []

    def init(*_, **__):
        starts.append(1)
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError, match="Ray did not start on this machine"):
        connect()
    assert len(starts) == 6
