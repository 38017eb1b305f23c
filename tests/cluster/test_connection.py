"""Joining a cluster, and a task on one of its nodes, where Ray only says what it was asked for."""

import os
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import ray
from ray.exceptions import RayError, RayTaskError

from pipelines.cluster import connection, dispatch
from pipelines.cluster.connection import Worker, await_nodes, caller, check_shared, connect
from pipelines.config.schema import Compute
from pipelines.host.errors import UserError
from tests.support.arrivals import arrives

HERE, SECOND = "aa" * 28, "bb" * 28  # as Ray names nodes


def node(name=SECOND, **resources):
    address = f"at {name}"
    return {"Alive": True, "NodeID": name, "NodeManagerAddress": address, "Resources": resources}


class Gone(RayError):
    def __str__(self):
        return "it is gone\nsome\ndetails"


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Nodes, a clock that sleeping moves, and remote functions that run here; options are kept."""
    found = SimpleNamespace(nodes=[node(HERE, CPU=1.0)], now=100.0, options=[], starts=[])

    def sleep(seconds):
        assert seconds > 0
        found.now += seconds

    def remote(function=None, **options):
        found.options.append(options)
        if function is None:
            return remote
        return Mock(remote=function, options=lambda **more: remote(function, **more))

    def init(address, **settings):
        found.starts.append((address, settings))

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connection, "monotonic", lambda: found.now)
    monkeypatch.setattr(connection, "sleep", sleep)
    there = Mock(get_node_id=lambda: HERE)
    fake = {"remote": remote, "get": lambda value, timeout=None: value, "init": init}
    fake |= {"nodes": lambda: found.nodes, "get_runtime_context": lambda: there}
    fake |= {"cluster_resources": lambda: {}, "is_initialized": lambda: bool(found.starts)}
    for name, value in fake.items():
        monkeypatch.setattr(ray, name, value)
    return found


@pytest.mark.parametrize(
    ("address", "finds_others"),
    [(None, False), ("127.0.0.1:6379", False), ("10.0.0.1:6379", True)],
)
def test_ray_is_started_here_once_or_a_cluster_is_joined(asked, monkeypatch, address, finds_others):
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    for name in connection.CHATTY:
        monkeypatch.setenv(name, "")  # put back afterwards
        del os.environ[name]
    monkeypatch.setattr(connection.ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.setattr(connection, "check_address", Mock())
    monkeypatch.setattr(connection, "whole_cores", lambda: 5)
    connect()
    connect()
    ((where, settings),) = asked.starts
    expected = ("local", 5, False) if address is None else (address, None, None)
    assert (where, settings["num_cpus"], settings["include_dashboard"]) == expected
    passed_on = settings["runtime_env"]["env_vars"]
    assert ("RAY_API_SERVER_ADDRESS" in passed_on) == (address is None)
    assert passed_on.get("RAY_ADDRESS") == address
    assert {os.environ[name] for name in connection.CHATTY} == {"0"}
    assert finds_others == connection.ray_constants.ENABLE_RAY_CLUSTER


def test_what_ray_cannot_do_is_one_line_and_a_bug_is_not(asked, monkeypatch):
    init = Mock(side_effect=ConnectionError("no such node\nsome\ndetails"))
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError, match=r"^RAY_ADDRESS=local: no such node$"):
        connect()
    init.side_effect = KeyError("a bug")
    with pytest.raises(KeyError):
        connect()


def test_a_node_without_a_resource_holds_no_worker():
    assert Worker(0.5, 0).fitting(node(GPU=2.0)) == 0
    assert Worker(1, 0.5).fitting(node(CPU=4.0)) == 0


@pytest.mark.parametrize(("address", "seconds"), [("", 0.5), ("10.0.0.1:6379", 2.5)])
def test_nodes_that_a_cluster_lacks_are_awaited(asked, monkeypatch, address, seconds):
    monkeypatch.setenv("RAY_ADDRESS", address)
    await_nodes(Worker(1, 0), 1, 2.0)
    words = r"2 of 1 CPUs and 0 GPUs each .* room for 1: 0 CPUs and 0 GPUs on 1 nodes$"
    with pytest.raises(UserError, match=words):
        await_nodes(Worker(1, 0), 2, 2.0)
    assert asked.now == 100 + seconds
    asked.nodes = Mock(side_effect=[asked.nodes, 2 * asked.nodes], return_value=None)
    monkeypatch.setattr(ray, "nodes", asked.nodes)
    await_nodes(Worker(1, 0), 2, 2.0)
    assert asked.now == 100.5 + seconds


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (RayTaskError("f", "", UserError("too high")), UserError, "^too high$"),
        (RayTaskError("f", "", OSError("disk")), OSError, "^disk$"),
        (RayTaskError("f", "a bug", KeyError()), RayTaskError, "^a bug$"),
        (Gone(), UserError, "^lost while it ran on Ray: it is gone$"),
    ],
)
def test_a_task_on_a_worker_returns_its_result_or_raises_its_error(asked, raised, kind, words):
    call = caller(Worker(1, 0))
    assert (asked.options[0]["num_cpus"], asked.options[0]["num_gpus"]) == (1, 0)
    assert call(lambda: 7) == 7
    with pytest.raises(kind, match=words):
        call(Mock(side_effect=raised))
    asked.nodes = []
    with pytest.raises(UserError, match="do not fit"):
        caller(Worker(1, 0))


def test_every_other_node_must_see_the_folder(asked, monkeypatch, tmp_path):
    second = node()
    asked.nodes.append(second)
    check_shared(tmp_path)
    _, options = asked.options
    strategy = options["scheduling_strategy"]
    assert (strategy.node_id, strategy.soft, options["num_cpus"]) == (SECOND, False, 0)
    monkeypatch.setattr(ray, "get", lambda seen, timeout: not seen)
    with pytest.raises(UserError, match=f"node at {SECOND} does not see the same files"):
        check_shared(tmp_path)
    monkeypatch.setattr(ray, "get", Mock(side_effect=Gone()))
    with pytest.raises(UserError, match=rf"^node at {SECOND}: it is gone$"):
        check_shared(tmp_path)
    listed = iter([asked.nodes, asked.nodes[:1]])  # it has died meanwhile
    monkeypatch.setattr(ray, "nodes", lambda: next(listed))
    check_shared(tmp_path)


@arrives("compute", "threads cpus_per_worker gpus_per_worker")
@pytest.mark.parametrize(("gpus", "visible"), [(0, ""), (1, "5"), (None, "5")])
def test_work_is_done_in_this_process_but_with_a_cluster_on_a_worker(
    asked, monkeypatch, gpus, visible
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setattr(dispatch, "set_threads", threads := Mock())
    monkeypatch.setattr(connection, "connect", Mock())
    monkeypatch.setattr(connection, "caller", away := Mock())
    here, compute = Mock(), Compute(gpus_per_worker=gpus, cpus_per_worker=5, threads=3)
    dispatch.here_or_on_a_worker(SimpleNamespace(compute=compute), here)
    assert (here.called, away.called) == (True, False)
    threads.assert_called_once_with(3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    dispatch.here_or_on_a_worker(SimpleNamespace(compute=compute), here)
    here.assert_called_once()
    away.assert_called_once_with(Worker(5, gpus or 0))
    away.return_value.assert_called_once_with(here)
