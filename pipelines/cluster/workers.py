"""Tasks on all cores of this machine, or, with RAY_ADDRESS, of a Ray cluster.

Worker processes import this module, so it stays light: no torch, no omegaconf.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from pipelines.host.errors import UserError

MAX_TASKS_WITHOUT_WORKERS = 2  # which take less time than starting workers

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[Task], Iterable[Result]], tasks: Iterable[Task], cores: int
) -> Iterator[tuple[Task, Result]]:
    """Yield what ``function`` gives for each task once the task is done: a task's results in order,
    tasks in any order. A task is asked for when a worker is free. A few tasks are done in this
    process, with all cores for each.

    Raises a task's UserError or OSError, once tasks under way have ended.
    """
    tasks = iter(tasks)
    first = [*islice(tasks, max(cores, MAX_TASKS_WITHOUT_WORKERS + 1))]
    ray = os.environ.get("RAY_ADDRESS")
    if len(first) <= MAX_TASKS_WITHOUT_WORKERS or (cores == 1 and not ray):
        yield from ((task, result) for task in chain(first, tasks) for result in function(task))
        return
    if ray:
        pool, workers, call = on_ray(function)
    else:
        pool, workers, call = on_this_machine(function, min(cores, len(first)), cores)
    tasks = chain(first, tasks)
    running: dict[Future[list[Result]], Task] = {}
    try:
        while True:
            # A task is taken only when a worker is free for it, so that a stream of tasks may
            # depend on results that have been yielded
            for task in islice(tasks, workers - len(running)):
                running[pool.submit(call, task)] = task
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                yield from ((task, result) for result in future.result())
    except BrokenProcessPool:
        raise UserError(
            "a worker process was killed, perhaps out of memory; the same command continues with "
            "the rest"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def results(function: Callable[[Task], Iterable[Result]], task: Task) -> list[Result]:
    return [*function(task)]


Workers = tuple[Executor, int, Callable[[Task], list[Result]]]


def on_this_machine(
    function: Callable[[Task], Iterable[Result]], workers: int, cores: int
) -> Workers[Task, Result]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([function.__module__])
    pool = ProcessPoolExecutor(workers, context, start_worker, (cores // workers,))
    return pool, workers, partial(results, function)


def start_worker(threads: int) -> None:
    """Set up a new worker process: it uses ``threads`` cores, and ends with the stage."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback: the stage prints one line
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def on_ray(function: Callable[[Task], Iterable[Result]]) -> Workers[Task, Result]:
    """A thread for each core of the cluster, which waits for its task; Ray repeats lost tasks."""
    from pipelines.cluster import connection

    connection.connect()
    workers = connection.Worker(cpus=1, gpus=0)
    call = connection.caller(workers)
    count = sum(map(workers.fitting, connection.nodes()))

    def there(task: Task) -> list[Result]:
        return call(partial(on_one_core, function, task))

    return ThreadPoolExecutor(count), count, there


def on_one_core(function: Callable[[Task], Iterable[Result]], task: Task) -> list[Result]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return [*function(task)]
