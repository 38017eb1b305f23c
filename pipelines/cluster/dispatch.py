"""Where a stage does its work: in this process, or on a worker of a Ray cluster."""

import os
from collections.abc import Callable

from pipelines.common.errors import UserError
from pipelines.common.shell_paths import ray_path
from pipelines.common.threads import set_threads
from pipelines.config.schema import Experiment


def check_path() -> None:
    """Raise UserError where Ray would wait without end for workers that it cannot start."""
    if path := ray_path():
        raise UserError(
            f"{path}: Ray starts no worker with a Python whose path has a space or another "
            "character that means something to a shell; move the project or its .venv to a path "
            "without, or train with compute.workers=1 and no RAY_ADDRESS"
        )


def here_or_on_a_worker(experiment: Experiment, task: Callable[[], None]) -> None:
    """Run a task in this process, or, with RAY_ADDRESS, on a worker of that cluster."""
    if os.environ.get("RAY_ADDRESS"):
        check_path()
        from pipelines.cluster.connection import on_a_worker  # one process needs no Ray

        on_a_worker(experiment, task)
    else:
        set_threads(experiment.compute.threads)
        task()
