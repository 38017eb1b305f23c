"""Training on Ray: several workers share each batch, on this machine or on a cluster.

The project's folder must lie on storage that all nodes share: workers read tokens there and write
checkpoints to it, from which training goes on when workers or nodes are lost.
"""

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import grpc
import ray
import ray.train
import ray.train.torch
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError
from ray.train import (
    ControllerError,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    WorkerGroupError,
)
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from pipelines.checkpoint import ROOT, resume_folder
from pipelines.errors import UserError
from pipelines.fit import Place, Start, find_start, fit
from pipelines.schema import Compute, Experiment, Strategy
from pipelines.sharding import ShardedStrategy
from pipelines.tracking import say

CHATTY = (  # of Ray Train; what it would say of errors comes from here
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER",
)
PASSED_ON = ("MLFLOW_", "GIT_REVISION")  # of the environment, to workers on other nodes
PATIENCE = 30.0  # seconds for nodes to appear that a cluster lacks
PATIENCE_AFTER_LOSS = 600.0  # and for those that were there, or others, to come back


def connect() -> None:
    """Join the cluster of RAY_ADDRESS, or start Ray on this machine alone, once.

    Raises UserError if nothing answers at RAY_ADDRESS.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    check_address(address)
    if address == "local":  # only so does Ray of one machine listen on loopback alone
        ray_constants.ENABLE_RAY_CLUSTER = False
    logging.getLogger("ray").setLevel(logging.ERROR)
    for name in CHATTY:
        os.environ.setdefault(name, "0")
    passed_on = {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)}
    try:
        ray.init(
            address,
            include_dashboard=True,  # on loopback; Ray Train asks it what to clean up
            logging_level=logging.ERROR,
            logging_config=ray.LoggingConfig(log_level="CRITICAL"),
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT), **passed_on}},
        )
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        raise UserError(f"RAY_ADDRESS={address}: {str(error).splitlines()[0]}") from None


def check_address(address: str) -> None:
    """Raise UserError at once for an address that Ray would try for minutes."""
    if address in ("local", "auto") or os.environ.get("RAY_USE_TLS") == "1":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(
            f"RAY_ADDRESS={address}: training joins a cluster by the address of its head node, "
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
    """What one worker takes of a node."""

    cpus: float
    gpus: float

    def fitting(self, node: dict[str, Any]) -> int:
        """How many of them a node can hold."""
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


def on_a_worker(experiment: Experiment, task: Callable[[], None]) -> None:
    """Run a task in the project's folder on some node, with what a training worker takes of it.

    Raises UserError as the task does, and if no node has that much.
    """
    connect()
    worker, root = worker_of(experiment.compute), Path.cwd()
    await_nodes(worker, 1, PATIENCE)
    check_shared(root)

    def there() -> None:
        os.chdir(root)
        task()

    nowhere: Any = None  # within no placement group: not within what Tune gave a trial
    remote = ray.remote(
        num_cpus=worker.cpus,
        num_gpus=worker.gpus,
        scheduling_strategy=PlacementGroupSchedulingStrategy(nowhere),
    )(there)
    try:
        ray.get(remote.remote())
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise


def check_shared(folder: Path) -> None:
    """Raise UserError if a node does not see the project's folder."""

    def sees(path: str) -> bool:
        return os.path.isdir(path)

    here = ray.get_runtime_context().get_node_id()
    for node in nodes():
        if node["NodeID"] == here:
            continue
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        look = ray.remote(sees).options(num_cpus=0, scheduling_strategy=there)
        if not ray.get(look.remote(str(folder)), timeout=60):
            raise UserError(
                f"{folder}: node {node['NodeManagerAddress']} does not see it; the project's "
                "folder must lie on storage that all nodes share"
            )


@dataclass
class Job:
    """What every worker is told."""

    root: Path
    experiment: Experiment
    name: str
    start: Start
    report: bool


def work(config: dict[str, Any]) -> None:
    """A worker's life, in a process of its own."""
    job: Job = config["job"]
    os.chdir(job.root)
    context = ray.train.get_context()
    worker, workers = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    sharded = job.experiment.compute.strategy is Strategy.fsdp
    place = Place(
        worker,
        workers,
        trainer={
            "accelerator": "cpu" if device.type == "cpu" else "gpu",
            "devices": "auto",
            "strategy": ShardedStrategy(device, workers) if sharded else RayDDPStrategy(),
        },
        plugins=[RayLightningEnvironment()],
    )
    watch = ray.train.report if job.report else None
    fit(job.experiment, job.name, place, job.start, watch)


def fit_on_ray(experiment: Experiment, name: str, callbacks: list[Any] | None = None) -> None:
    """Train a run on ``compute.workers`` workers, through the loss of some of them.

    ``callbacks`` hear of every row of the training curve. Raises UserError as fit() does, and if
    the cluster cannot hold the workers or loses more of them than ``compute.max_failures``.
    """
    connect()
    compute = experiment.compute
    worker = worker_of(compute)
    await_nodes(worker, compute.workers, PATIENCE)
    check_shared(Path.cwd())
    say(f"{name}: on Ray, {compute.workers} workers of {worker}")
    storage = (resume_folder(experiment.name, name) / "ray").resolve()
    losses = 0
    while True:
        start = find_start(experiment, name)
        shutil.rmtree(storage, ignore_errors=True)
        trainer = TorchTrainer(
            work,
            train_loop_config={
                "job": Job(Path.cwd(), experiment, name, start, report=bool(callbacks))
            },
            torch_config=TorchConfig(backend="nccl" if worker.gpus else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=compute.workers,
                use_gpu=bool(worker.gpus),
                resources_per_worker=worker.resources(),
            ),
            run_config=RunConfig(
                name=name,
                storage_path=str(storage),
                callbacks=callbacks,
                failure_config=FailureConfig(max_failures=0),  # losses are counted here
            ),
        )
        try:
            trainer.fit()
            return
        except TrainingFailedError as error:
            lost = explain(error)
        finally:
            shutil.rmtree(storage, ignore_errors=True)
        losses += 1
        if losses > compute.max_failures:
            raise UserError(
                f"{name}: {lost}; this is loss {losses}, compute.max_failures is "
                f"{compute.max_failures}"
            )
        say(f"{name}: {lost} (loss {losses} of at most {compute.max_failures}); going on")
        await_nodes(worker, compute.workers, PATIENCE_AFTER_LOSS)


def explain(error: TrainingFailedError) -> str:
    """Words on workers that were lost.

    An error of the user's that a worker has met is raised here instead; so is a bug, which is no
    RuntimeError: those come from collective operations whose other workers are gone.
    """
    if isinstance(error, ControllerError):  # a worker that is lost while all of them start
        failures = {"": error.controller_failure}
    else:
        assert isinstance(error, WorkerGroupError)
        failures = {f" {rank}": failure for rank, failure in sorted(error.worker_failures.items())}
    words = []
    for rank, failure in failures.items():
        if isinstance(failure, UserError):
            raise failure from None
        if not (isinstance(failure, RuntimeError) or type(failure).__module__.startswith("ray.")):
            raise error
        words.append(f"worker{rank} ({str(failure).partition('. ')[0].splitlines()[-1][:200]})")
    return f"lost {', '.join(words)}"
