"""Joining Ray: the cluster of RAY_ADDRESS, or one on this machine."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import ray

from pipelines.errors import UserError
from pipelines.schema import Experiment


def connect() -> None:
    """Join the cluster of RAY_ADDRESS, or start Ray on this machine; raises UserError."""
    if ray.is_initialized():
        return
    # without an address Ray would join whatever cluster was started last on this machine
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            logging_level=logging.WARNING,
            runtime_env={"env_vars": {"PYTHONPATH": str(Path.cwd())}},
        )
    except (ConnectionError, ValueError) as error:
        raise UserError(f"Ray at {address}: {error}") from None


def fit_on_ray(
    experiment: Experiment, name: str, watch: Callable[[dict[str, float]], None] | None = None
) -> None:
    """Train a run on compute.workers Ray workers."""
    raise UserError("compute.workers: more than one is not here yet")
