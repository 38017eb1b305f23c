"""Where a stage does its work: in this process, or on a worker of a Ray cluster."""

import os
from collections.abc import Callable

from pipelines.common.threads import set_threads
from pipelines.config.schema import Experiment


def here_or_on_a_worker(experiment: Experiment, task: Callable[[], None]) -> None:
    """Run a task in this process, or, with RAY_ADDRESS, on a worker of that cluster."""
    if os.environ.get("RAY_ADDRESS"):
        from pipelines.cluster.connection import on_a_worker  # one process needs no Ray

        on_a_worker(experiment, task)
    else:
        set_threads(experiment.compute.threads)
        task()
