"""Launches training on Ray: several workers share each batch, on this machine or on a cluster.

Workers read tokens in the project's folder and write checkpoints to it, from which training goes on
when workers or nodes are lost.
"""

import os
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
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

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.connection import (
    PATIENCE,
    Worker,
    await_nodes,
    check_shared,
    connect,
    worker_of,
)
from pipelines.config.schema import Strategy
from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.tracking.journal import open_journal
from pipelines.tracking.live import Tracking
from pipelines.train.core.acceleration import ShardedStrategy
from pipelines.train.core.segments import Start, find_start
from pipelines.train.core.trainer import Process, fit_segment

# in RuntimeErrors of a collective operation whose other workers are gone
GONE = re.compile("gloo|nccl|connection|process group|socket", re.IGNORECASE)
PATIENCE_AFTER_LOSS = 600.0  # for lost nodes, or others, to come back


def work(root: Path, spec: RunSpec, start: Start, report: bool) -> None:
    """What each worker of Ray Train does."""
    os.chdir(root)
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    sharded = spec.experiment.compute.strategy is Strategy.fsdp
    process = Process(
        rank,
        world_size,
        trainer={
            "accelerator": "cpu" if device.type == "cpu" else "gpu",
            "devices": "auto",
            "strategy": ShardedStrategy(device, world_size) if sharded else RayDDPStrategy(),
        },
        environment=RayLightningEnvironment(),
    )
    fit_segment(spec, process, start, ray.train.report if report else None)


def fit_on_ray(spec: RunSpec, manifest: Manifest, callbacks: list[Any] | None = None) -> None:
    """Train a run on ``compute.workers`` workers, even if some of them are lost.

    ``callbacks`` hear of every row of the training curve. Raises UserError as fit() does, and if
    the cluster cannot hold the workers or loses more of them than ``compute.max_failures``.
    """
    connect()
    name, compute = spec.name, spec.experiment.compute
    worker = worker_of(compute)
    await_nodes(worker, compute.workers, PATIENCE)
    check_shared(Path.cwd())
    say(f"{name}: on Ray, {compute.workers} workers of {worker}")
    losses, ended = 0, False
    while not ended:
        start = find_start(spec, manifest)
        try:
            launch(spec, start, worker, callbacks)
            ended = start.segment.last
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


def launch(spec: RunSpec, start: Start, worker: Worker, callbacks: list[Any] | None) -> None:
    """Try once; raises TrainingFailedError, and ends the MLflow run that rank 0 has begun."""
    compute, storage = spec.experiment.compute, (spec.resume / "ray").resolve()
    shutil.rmtree(storage, ignore_errors=True)
    trainer = TorchTrainer(
        partial(work, Path.cwd(), spec, start, bool(callbacks)),
        torch_config=TorchConfig(backend="nccl" if worker.gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=compute.workers,
            use_gpu=bool(worker.gpus),
            resources_per_worker=worker.resources(),
        ),
        run_config=RunConfig(
            name=spec.name,
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
            journal = open_journal(start.manifest, spec.experiment, go_on=True)
            Tracking(journal).finish("FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def restart() -> None:
    """Restart Ray on this machine, if this process has started it: Ray keeps the resources of
    workers that are lost while they start.
    """
    if ray.get_runtime_context().worker.mode == ray.SCRIPT_MODE:
        ray.shutdown()
        connect()


def explain(error: TrainingFailedError) -> str:
    """Which workers were lost, in words.

    A worker's UserError is raised here instead, and so is a bug: any error that comes neither from
    Ray nor from a collective operation whose other workers are gone.
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
    # A worker is lost, or one that it was talking to
    lost = any(
        type(failure).__module__.startswith("ray.")
        or (isinstance(failure, RuntimeError) and GONE.search(str(failure)))
        for failure in failures.values()
    )
    if not lost:
        raise error
    words = [
        f"{who} ({str(failure).partition('. ')[0].splitlines()[-1][:200]})"
        for who, failure in failures.items()
    ]
    return f"lost {', '.join(words)}"
