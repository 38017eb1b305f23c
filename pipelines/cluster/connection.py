"""Ray: joining a cluster, or starting one on this machine, and running a task on one of its nodes.

The project's folder must lie on storage that all nodes share.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic, sleep
from typing import Any, TypeVar

import grpc
import ray
import ray.train
import ray.train.torch
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from pipelines.cluster.preflight import check_ray
from pipelines.config.schema import Compute, Experiment
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT
from pipelines.host.machine import whole_cores

CHATTY = (  # logs of Ray Train; errors are reported by train/distributed.py
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER",
)
PASSED_ON = ("MLFLOW_", "GIT_REVISION", "RAY_ADDRESS")  # environment variables, to other nodes
MAX_STARTS = 6  # of Ray on a busy machine, each with the half a minute that Ray allows itself
PATIENCE = 30.0  # seconds for nodes to appear that a cluster lacks

Result = TypeVar("Result")


def connect() -> None:
    """Join the cluster of RAY_ADDRESS or start Ray here, once; raises UserError if that fails."""
    if ray.is_initialized():
        return
    check_ray()
    address = os.environ.get("RAY_ADDRESS") or "local"
    check_address(address)
    if address == "local" or address.startswith("127.0.0.1:"):  # else Ray takes another for it
        ray_constants.ENABLE_RAY_CLUSTER = False
    logging.getLogger("ray").setLevel(logging.ERROR)
    for name in CHATTY:
        os.environ.setdefault(name, "0")
    passed_on = {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)}
    if address == "local":
        passed_on["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:9"  # else Ray Train waits for one
    for _ in range(MAX_STARTS):
        try:
            ray.init(
                address,
                num_cpus=whole_cores() if address == "local" else None,
                include_dashboard=False if address == "local" else None,  # it is slow to start
                logging_level=logging.ERROR,
                logging_config=ray.LoggingConfig(log_level="CRITICAL"),
                runtime_env={"env_vars": {"PYTHONPATH": str(ROOT), **passed_on}},
            )
            return
        except (ConnectionError, RayError, RuntimeError, ValueError) as error:
            raise UserError(f"RAY_ADDRESS={address}: {str(error).splitlines()[0]}") from None
        except Exception as error:
            if "timed out during startup" not in str(error):  # Ray has no name for it
                raise
    raise UserError(
        f"Ray did not start on this machine in {MAX_STARTS} tries of half a minute; it may be busy"
    )


def check_address(address: str) -> None:
    """Raise UserError at once for an address that Ray would try for minutes."""
    if address in ("local", "auto") or os.environ.get("RAY_USE_TLS") == "1":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(
            f"RAY_ADDRESS={address}: training needs the address of the head node, "
            "host:port (http://… is for `ray job submit`)"
        )
    channel = grpc.insecure_channel(address)
    try:
        grpc.channel_ready_future(channel).result(timeout=10)
    except grpc.FutureTimeoutError:
        raise UserError(f"RAY_ADDRESS={address}: no Ray cluster answers there") from None
    finally:
        channel.close()


@dataclass
class Worker:
    """The resources of a node that one worker takes."""

    cpus: float
    gpus: float

    def fitting(self, node: dict[str, Any]) -> int:
        """How many such workers a node can hold."""
        resources = node["Resources"]
        room = [resources.get("CPU", 0) / self.cpus]
        if self.gpus:
            room.append(resources.get("GPU", 0) / self.gpus)
        return int(min(room) + 1e-6)

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs and {self.gpus:g} GPUs"

    def resources(self) -> dict[str, float]:
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})


def nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def worker_of(compute: Compute) -> Worker:
    gpus = compute.gpus_per_worker
    if gpus is None:
        gpus = float(any(node["Resources"].get("GPU") for node in nodes()))
    return Worker(compute.cpus_per_worker, gpus)


def await_nodes(worker: Worker, workers: int, patience: float) -> None:
    """Wait until the cluster could hold all workers; raise UserError if it cannot in time."""
    local = not os.environ.get("RAY_ADDRESS")  # this machine has what it has
    deadline = monotonic() + (0 if local else patience)
    while (room := sum(worker.fitting(node) for node in nodes())) < workers:
        if monotonic() > deadline:
            have = ray.cluster_resources()
            raise UserError(
                f"compute.workers: {workers} of {worker} each do not fit into the cluster, which "
                f"has room for {room}: {have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs "
                f"on {len(nodes())} nodes"
            )
        sleep(0.5)


def runs_at_once(compute: Compute) -> int:
    """How many runs the cluster can hold; raises UserError if none fits."""
    worker = worker_of(compute)
    await_nodes(worker, compute.workers, PATIENCE)
    check_shared(Path.cwd())
    return sum(worker.fitting(node) for node in nodes()) // compute.workers


def on_a_worker(experiment: Experiment, task: Callable[[], None]) -> None:
    """Run a task in this folder on a worker; raises the task's UserError, or one if none fits."""
    connect()
    caller(worker_of(experiment.compute))(task)


def caller(worker: Worker) -> Callable[[Callable[[], Result]], Result]:
    """A function that runs a task in this folder with the resources of ``worker`` and returns its
    result, or raises its UserError or OSError. Raises UserError if the worker fits nowhere.
    """
    root = Path.cwd()
    await_nodes(worker, 1, PATIENCE)
    check_shared(root)

    def there(task: Callable[[], Result]) -> Result:
        os.chdir(root)
        return task()

    nowhere: Any = None  # within no placement group: not within what Tune gave a trial
    remote: Any = ray.remote(
        num_cpus=worker.cpus,
        num_gpus=worker.gpus,
        scheduling_strategy=PlacementGroupSchedulingStrategy(nowhere),
    )(there)

    def call(task: Callable[[], Result]) -> Result:
        try:
            return ray.get(remote.remote(task))
        except RayTaskError as error:
            if isinstance(error.cause, UserError | OSError):
                raise error.cause from None
            raise
        except RayError as error:
            words = str(error).splitlines()[0]
            raise UserError(f"lost while it ran on Ray: {words}") from None

    return call


def check_shared(folder: Path) -> None:
    """Raise UserError unless every node sees what is written to the project's folder."""

    def sees(path: str) -> bool:
        return os.path.exists(path)

    here = ray.get_runtime_context().get_node_id()
    with NamedTemporaryFile(dir=folder) as file:
        for node in nodes():
            if node["NodeID"] == here:
                continue
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            look = ray.remote(sees).options(num_cpus=0, scheduling_strategy=there)
            try:
                seen = ray.get(look.remote(file.name), timeout=60)
            except RayError as error:
                if node["NodeID"] not in (alive["NodeID"] for alive in nodes()):
                    continue  # it died meanwhile
                reason = str(error).splitlines()[0]
                raise UserError(f"node {node['NodeManagerAddress']}: {reason}") from None
            if not seen:
                raise UserError(
                    f"{folder}: node {node['NodeManagerAddress']} does not see the same files; "
                    "the project's folder must lie on storage that all nodes share"
                )
