"""Tasks on all cores or on a cluster: which are done here, and how many are under way."""

import os
from functools import partial
from unittest.mock import Mock

import pytest

from pipelines.cluster import connection, workers
from pipelines.cluster.workers import on_ray, on_this_machine, run_tasks, start_worker


@pytest.fixture
def pool(monkeypatch):
    """Of two workers, of whose tasks the oldest is done whenever one is waited for."""
    made = Mock(submit=lambda call, task: Mock(result=partial(call, task)), sizes=[])

    def wait(running, return_when):
        made.sizes.append(len(running))
        return Mock(done=[next(iter(running))])

    for name in ("on_this_machine", "on_ray"):
        made_by = Mock(return_value=(made, 2, lambda task: [task, -task]))
        monkeypatch.setattr(workers, name, made_by)
        setattr(made, name, made_by)
    monkeypatch.setattr(workers, "wait", wait)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return made


def here(task):
    return [10 * task]


@pytest.mark.parametrize(
    ("tasks", "cores", "ray", "by"),
    [
        (2, 4, "", None),
        (3, 4, "", "on_this_machine"),
        (5, 4, "", "on_this_machine"),
        (5, 1, "", None),
        (2, 1, "10.0.0.1:6379", None),
        (3, 1, "10.0.0.1:6379", "on_ray"),
        (5, 4, "10.0.0.1:6379", "on_ray"),
    ],
)
def test_a_few_tasks_or_those_of_one_core_are_done_in_this_process(
    pool, monkeypatch, tasks, cores, ray, by
):
    monkeypatch.setenv("RAY_ADDRESS", ray)
    found = [*run_tasks(here, range(1, tasks + 1), cores)]
    numbers = range(1, tasks + 1)
    away = [(task, result) for task in numbers for result in (task, -task)]
    assert found == (away if by else [(task, 10 * task) for task in numbers])
    assert pool.on_this_machine.called == (by == "on_this_machine")
    assert pool.on_ray.called == (by == "on_ray")
    if by == "on_this_machine":
        pool.on_this_machine.assert_called_once_with(here, min(cores, tasks), cores)


def test_as_many_tasks_are_under_way_as_there_are_workers(pool, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    waiting = iter(range(1, 7))
    found = run_tasks(here, waiting, 1)
    assert next(found) == (1, 1)
    assert next(waiting) == 4, "asked for before a worker is free"
    assert [task for task, _ in found] == [1, 2, 2, 3, 3, 5, 5, 6, 6]
    assert pool.sizes == [2, 2, 2, 2, 1]
    pool.shutdown.assert_called_once_with(cancel_futures=True)


def test_workers_share_the_cores_of_this_machine(monkeypatch):
    monkeypatch.setattr(workers, "ProcessPoolExecutor", made := Mock())
    assert on_this_machine(here, 2, 5)[:2] == (made.return_value, 2)
    n, _, begin, given = made.call_args.args
    assert (n, begin, given) == (2, start_worker, (2,))


@pytest.mark.parametrize(("threads", "parallel"), [(1, "false"), (2, "true")])
def test_a_worker_has_its_threads_and_ends_with_the_stage(monkeypatch, threads, parallel):
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "of the stage")
    parent, follow, end = Mock(), Mock(), Mock()
    monkeypatch.setattr(workers.multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(workers.threading, "Thread", follow)
    monkeypatch.setattr(workers.signal, "signal", Mock())
    monkeypatch.setattr(workers.os, "_exit", end)
    start_worker(threads)
    assert os.environ["TOKENIZERS_PARALLELISM"] == parallel
    assert os.environ["RAYON_NUM_THREADS"] == str(threads)
    assert follow.call_args.kwargs["daemon"] is True
    follow.call_args.kwargs["target"]()
    parent.join.assert_called_once_with()
    end.assert_called_once_with(1)


def test_a_cluster_has_a_worker_for_each_core(monkeypatch):
    nodes = [{"Resources": {"CPU": 3.0, "GPU": 2.0}}, {"Resources": {"CPU": 2.0}}]
    monkeypatch.setattr(connection, "connect", Mock())
    monkeypatch.setattr(connection, "nodes", lambda: nodes)
    monkeypatch.setattr(connection, "caller", lambda worker: lambda task: task())
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "of the stage")
    pool, count, call = on_ray(here)
    assert (pool._max_workers, count, call(3)) == (5, 5, [30])
    pool.shutdown()
