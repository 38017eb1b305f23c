"""How many stages run side by side on this machine, and which cores and GPUs each may use."""

import os

import torch

from pipelines.config.schema import Compute
from pipelines.host.errors import UserError
from pipelines.host.machine import allowed_memory, whole_cores

PROCESS = 1.5e9  # bytes that a stage takes beside its model: PyTorch, Lightning, MLflow, DVC
USABLE = 0.8  # of the machine's memory

Slot = dict[str, str]  # environment variables of the stages that run in it


def gpu_ids() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(i) for i in range(count)]


def make_slots(compute: Compute, runs: int, memory: float, jobs: int | None) -> list[Slot]:
    """A slot for each stage that may run at once: ``jobs``, or as many as pay.

    Depends on the machine and the configuration alone, not on what else is running: threads decide
    the last digits of a result, which must not change when a pipeline is continued.

    Args:
        runs: number of runs; more slots than runs would stay empty most of the time.
        memory: bytes of the largest run's worker, by the planner.
    Raises:
        UserError: a run needs more GPUs than ``jobs`` leaves for it.
    """
    gpus, cores = gpu_ids(), whole_cores()
    workers = compute.workers
    cpus_each = workers * compute.cpus_per_worker if workers > 1 else compute.threads or 1
    gpus_each = workers * (1 if compute.gpus_per_worker is None else compute.gpus_per_worker)
    if not gpus_each:
        gpus = []  # no run uses one
    if jobs is None:
        fitting = [runs, cores // cpus_each]
        if gpus:
            fitting.append(int(len(gpus) / gpus_each))
        else:
            fitting.append(int(USABLE * allowed_memory() / (PROCESS + workers * memory)))
        jobs = max(1, min(fitting))
    share = int(gpus_each) or 1
    if gpus and workers > 1 and share * jobs > len(gpus):
        raise UserError(
            f"JOBS={jobs}: each run has compute.workers={workers}, with {gpus_each:g} GPUs in all, "
            f"and there are {len(gpus)}"
        )
    slots = []
    for i in range(jobs):
        slot = {"OMP_NUM_THREADS": str(max(1, cores // jobs))}
        if gpus:
            mine = [gpus[(i * share + j) % len(gpus)] for j in range(share)]
            slot["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        slots.append(slot)
    return slots
