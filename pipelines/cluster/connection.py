"""Training on Ray: several workers share each batch, on this machine or on a cluster.

The project's folder must lie on storage that all nodes share: workers read tokens there and write
checkpoints to it, from which training goes on when workers or nodes are lost.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
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

from pipelines.checkpoint import resume_folder
from pipelines.errors import UserError
from pipelines.files import ROOT
from pipelines.fit import Place, fit_leg
from pipelines.legs import Start, find_start
from pipelines.schema import Compute, Experiment, Strategy
from pipelines.sharding import ShardedStrategy
from pipelines.tracking import Tracking, say

CHATTY = (  # of Ray Train; what it would say of errors comes from here
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER",
)
GONE = re.compile("gloo|nccl|connection|process group|socket", re.IGNORECASE)  # in RuntimeErrors
NO_DASHBOARD = {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"}  # else Ray Train waits for one
PASSED_ON = (
    "MLFLOW_",
    "GIT_REVISION",
    "RAY_ADDRESS",
)  # of the environment, to workers on other nodes
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
    if address == "local":
        passed_on |= NO_DASHBOARD
    try:
        ray.init(
            address,
            include_dashboard=False if address == "local" else None,  # it is slow to start
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
    except RayError as error:
        raise UserError(f"lost while it ran on Ray: {str(error).splitlines()[0]}") from None


def check_shared(folder: Path) -> None:
    """Raise UserError if what is written to the project's folder does not reach every node."""

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
                reason = str(error).splitlines()[0]
                raise UserError(f"node {node['NodeManagerAddress']}: {reason}") from None
            if not seen:
                raise UserError(
                    f"{folder}: node {node['NodeManagerAddress']} does not see it as it is here; "
                    "the project's folder must lie on storage that all nodes share"
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
    fit_leg(job.experiment, job.name, place, job.start, watch)


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
    losses, ended = 0, False
    while not ended:
        start = find_start(experiment, name)
        try:
            launch(Job(Path.cwd(), experiment, name, start, bool(callbacks)), worker, callbacks)
            ended = start.leg.last
        except TrainingFailedError as error:
            lost = explain(error)
            losses += 1
            if losses > compute.max_failures:
                raise UserError(
                    f"{name}: {lost}; this is loss {losses}, compute.max_failures is "
                    f"{compute.max_failures}"
                ) from None
            say(f"{name}: {lost} (loss {losses} of at most {compute.max_failures}); going on")
            if not os.environ.get("RAY_ADDRESS"):
                restart()
            await_nodes(worker, compute.workers, PATIENCE_AFTER_LOSS)


def launch(job: Job, worker: Worker, callbacks: list[Any] | None) -> None:
    """One attempt; raises TrainingFailedError, and ends the MLflow run that worker 0 has begun."""
    compute = job.experiment.compute
    storage = (resume_folder(job.experiment.name, job.name) / "ray").resolve()
    shutil.rmtree(storage, ignore_errors=True)
    trainer = TorchTrainer(
        work,
        train_loop_config={"job": job},
        torch_config=TorchConfig(backend="nccl" if worker.gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=compute.workers,
            use_gpu=bool(worker.gpus),
            resources_per_worker=worker.resources(),
        ),
        run_config=RunConfig(
            name=job.name,
            storage_path=str(storage),
            callbacks=callbacks,
            # losses are counted in fit_on_ray, which looks for the newest checkpoint each time
            failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),  # type: ignore[call-arg]
        ),
    )
    try:
        trainer.fit()
    except BaseException as error:
        with suppress(UserError):  # a full disk, say: ``error`` says more
            tracking = Tracking(job.experiment.name)
            tracking.start(job.start.card, job.experiment, go_on=True)
            tracking.finish("FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def restart() -> None:
    """Start Ray of this machine anew, if this process has started it: of workers that are lost
    while they start, Ray keeps what they had taken.
    """
    if ray.get_runtime_context().worker.mode == ray.SCRIPT_MODE:
        ray.shutdown()
        connect()


def explain(error: TrainingFailedError) -> str:
    """Words on workers that were lost.

    An error of the user's that a worker has met is raised here instead, and so is a bug: any that
    is neither Ray's nor of a collective operation whose other workers are gone.
    """
    if isinstance(error, WorkerGroupError):
        failures = {f"worker {rank}": e for rank, e in sorted(error.worker_failures.items())}
    elif isinstance(error, ControllerError):  # of a worker that is lost while all of them start
        failures = {"a worker": error.controller_failure}
    else:
        failures = {"workers": error}
    for failure in failures.values():
        if isinstance(failure, UserError):
            raise failure from None
    if not any(map(is_loss, failures.values())):
        raise error
    words = [
        f"{who} ({str(failure).partition('. ')[0].splitlines()[-1][:200]})"
        for who, failure in failures.items()
    ]
    return f"lost {', '.join(words)}"


def is_loss(failure: BaseException) -> bool:
    """Whether a worker, or one that it was talking to, is gone."""
    if type(failure).__module__.startswith("ray."):
        return True
    return isinstance(failure, RuntimeError) and bool(GONE.search(str(failure)))
