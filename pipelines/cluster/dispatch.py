"""Where a stage does its work: in this process, or on a worker of a Ray cluster.

This module imports no Ray, because one process needs none.
"""

import os
from collections.abc import Callable

from pipelines.config.schema import Compute, Experiment
from pipelines.host.pytorch import set_threads


def settle(compute: Compute) -> None:
    """Apply `compute` to this process: its threads, and no GPU if it gives none."""
    if compute.gpus_per_worker == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # CUDA reads it when it is first asked for
    set_threads(compute.threads)


def here_or_on_a_worker(experiment: Experiment, task: Callable[[], None]) -> None:
    """Run a task in this process, or, with RAY_ADDRESS, on a worker of that cluster."""
    if os.environ.get("RAY_ADDRESS"):
        from pipelines.cluster.connection import on_a_worker

        on_a_worker(experiment, task)
    else:
        settle(experiment.compute)
        task()
