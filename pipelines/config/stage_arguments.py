"""What every stage does first: its argument, its entry in params.yaml, the place where it runs."""

import os
import sys
from collections.abc import Callable

from pipelines.errors import UserError
from pipelines.schema import Experiment, load_experiment


def argument(what: str) -> str:
    """The one command-line argument of a stage."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise UserError(f"usage: python -m {module()} <{what}>, as named in params.yaml")
    return sys.argv[1]


def module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else sys.argv[0]


def load_stage(group: str, name: str) -> Experiment:
    """The validated experiment; raises UserError unless ``name`` is in its ``group``."""
    experiment = load_experiment()
    known = getattr(experiment, group)
    if name not in known:
        raise UserError(f"{name!r} is not under {group} in params.yaml: {', '.join(known)}")
    return experiment


def here_or_on_a_worker(experiment: Experiment, task: Callable[[], None]) -> None:
    """Run a task in this process, or, with RAY_ADDRESS, on a worker of that cluster."""
    if os.environ.get("RAY_ADDRESS"):
        from pipelines.cluster import on_a_worker  # one process needs no Ray

        on_a_worker(experiment, task)
    else:
        task()
