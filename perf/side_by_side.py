"""Training runs side by side, and workers of Ray that share a batch, on the cores of this machine.

  JOBS      so many runs at once, each in a process with one thread, as `make repro JOBS=n` runs
            stages; the time from their common start until the last has done its steps
  workers   a step of stage train with compute.workers processes of one thread each, Ray's where
            there are several, by the speed that curve.csv says

Planned: cores are shared without loss and nothing is waited for; a worker takes the time of one
process with its part of the batch, since a step has costs that do not shrink with it. What workers
send one another is not planned, so their ratio shows it. CPU time of a run tells what runs side by
side take from one another even where others use the machine. Each run holds what the planner says;
processes on Ray hold their libraries as well, so four are set against two.
"""

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic, process_time
from typing import Any

import psutil
import torch

from ftmodel.costs import memory
from ftmodel.model.config import ModelConfig
from perf import steps
from perf.alone import end_with_parent
from perf.growth_plot import Curve
from perf.measure import Figure, figure
from pipelines.artifacts.curve import read_curve
from tests.support.project_copy import Project

MIB = 1 << 20
AXES = {"JOBS": "runs side by side, JOBS", "workers": "workers of Ray"}
JOBS = WORKERS = (1, 2, 4)
ARM = "Free Transformer"
STEPS, QUICK_STEPS = 8, 1
PATIENCE = 300.0  # seconds for runs to start, and to end
JOBS_TURNS, RAY_TURNS = 3, 2  # at most: processes start anew in each
RUN, RAY_STEPS, BATCH, CONTEXT = "free_k1", 40, 64, 65
SHAPE = (  # the quickstart's target_small
    "models.target_small.architecture="
    "{n_layers: 4, d_model: 64, n_heads: 4, n_kv_heads: 4, ffn_width: 168}"
)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def held() -> int:
    """Bytes of this process that it shares with no other."""
    return int(psutil.Process().memory_full_info().uss)


def one_run(
    config: ModelConfig, vocabulary: int, batch: int, count: int, ready: Barrier, results: Any
) -> None:
    """``count`` steps after all are ready; puts when they were over, the CPU time that they took,
    and the bytes that they needed.
    """
    torch.set_num_threads(1)
    tokens = torch.randint(vocabulary, (batch, config.context + 1))
    tiny = ModelConfig(2, 32, 1, 1, 32, config.context, latent_bits=4)
    steps.step(steps.ours(tiny, vocabulary), tokens)()  # libraries take what they need
    before = held()
    model, loss = steps.ours(config, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    most = 0

    def step(look: bool = False) -> None:
        nonlocal most
        value = loss(tokens)
        if look:  # the graph is whole
            most = held() - before
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    step()
    step(look=True)
    ready.wait()
    start = process_time()
    for _ in range(count):
        step()
    results.put((monotonic(), process_time() - start, most))


def runs(
    n: int, config: ModelConfig, vocabulary: int, batch: int, count: int
) -> tuple[float, float, int]:
    """Seconds until the last of ``n`` runs has done its steps, the most CPU time of a run, and
    bytes of all.
    """
    context = get_context("spawn")
    ready, results = context.Barrier(n + 1), context.Queue()
    arguments = (config, vocabulary, batch, count, ready, results)
    processes = [context.Process(target=one_run, args=arguments, daemon=True) for _ in range(n)]
    try:
        for process in processes:
            process.start()
        ready.wait(timeout=PATIENCE)
        start = monotonic()
        found = [results.get(timeout=PATIENCE) for _ in processes]
    finally:
        for process in processes:
            if process.pid is not None:  # else it was never started
                process.kill()
                process.join()
    ends, cpu, most = zip(*found, strict=True)
    return max(ends) - start, max(cpu), sum(most)


def jobs_curves(
    config: ModelConfig, vocabulary: int, batch: int, turns: int, quick: bool
) -> list[Curve]:
    counts = JOBS[:2] if quick else JOBS
    count = QUICK_STEPS if quick else STEPS
    found = [
        [runs(n, config, vocabulary, batch, count) for n in counts]
        for _ in range(min(turns, JOBS_TURNS))
    ]
    seconds, cpu, most = (
        [min(turn[i][part] for turn in found) for i in range(len(counts))] for part in range(3)
    )
    most = [each / MIB for each in most]
    one = memory(config, vocabulary, batch, half=False, device="cpu").total / MIB
    return [
        Curve("time", "JOBS", ARM, "s", counts, seconds, shared(counts, seconds[0])),
        Curve("CPU time", "JOBS", ARM, "s a run", counts, cpu, cpu[:1] * len(counts)),
        Curve("memory", "JOBS", ARM, "MiB", counts, most, [n * one for n in counts]),
    ]


def shared(counts: Sequence[int], one: float) -> list[float]:
    """Seconds of so many runs side by side, if one takes ``one``."""
    return [one * max(1.0, n / cores()) for n in counts]


def process_bytes(process: psutil.Process, workers: int) -> int:
    """Bytes that a process which trains shares with no other; 0 of others and if it has ended."""
    marks = "RayTrainWorker" if workers > 1 else "pipelines.train"
    try:
        trains = marks in " ".join(process.cmdline())
        return int(process.memory_full_info().uss) if trains else 0
    except psutil.Error:
        return 0


def train(project: Project, workers: int, batch: int, count: int) -> tuple[float, int]:
    """Seconds of a step of stage train on ``batch`` sequences, over ``count`` steps, and bytes that
    its training processes held together.
    """
    shutil.rmtree(project.folder / "resume", ignore_errors=True)
    project.compose(
        f"compute.workers={workers}",
        *("compute.threads=1", "compute.compile=false", "compute.gpus_per_worker=0"),
        f"runs.{RUN}.tokens={count * batch * CONTEXT}",
        f"models.target_small.optim.batch_size={batch}",
        SHAPE,
    )
    command = ["python", "-m", "pipelines.train", RUN]
    room = {"RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": workers})}  # of cores or not
    with TemporaryFile() as output:
        process = psutil.Popen(
            command,
            cwd=project.folder,
            env=project.environment | room,
            stdout=output,
            stderr=output,
            preexec_fn=end_with_parent,
        )
        most, family = 0, {process}
        try:
            while process.poll() is None:
                with suppress(psutil.Error):
                    family |= set(process.children(recursive=True))
                most = max(most, sum(process_bytes(each, workers) for each in family))
                with suppress(psutil.TimeoutExpired):
                    process.wait(0.5)
        finally:
            for each in family:
                with suppress(psutil.Error):
                    each.kill()
        output.seek(0)
        assert process.returncode == 0, output.read().decode()
    rows = read_curve(project.folder / "results/smoke" / RUN / "curve.csv")
    speed = max(row.tokens_per_second for row in rows[1:] or rows)
    return batch * CONTEXT / speed, most


def worker_curves(turns: int, quick: bool) -> list[Curve]:
    counts = WORKERS[:2] if quick else WORKERS
    with TemporaryDirectory() as scratch:
        project = Project(Path(scratch))
        project.compose()
        for stage in ("data", "tokenize"):
            project.ok("python", "-m", f"pipelines.{stage}", "target")
        count = QUICK_STEPS if quick else RAY_STEPS
        arms = [(n, BATCH) for n in counts] + [(1, BATCH // n) for n in counts[1:]]
        found = [
            [train(project, n, batch, count) for n, batch in arms]
            for _ in range(min(turns, RAY_TURNS))
        ]
    seconds = [min(turn[i][0] for turn in found) for i in range(len(arms))]
    most = [min(turn[i][1] for turn in found) / MIB for i in range(len(counts))]
    alone = seconds[:1] + seconds[len(counts) :]  # with a worker's part of the batch
    seconds = seconds[: len(counts)]
    planned = [each * max(1.0, n / cores()) for n, each in zip(counts, alone, strict=True)]
    on_ray = [most[1] * n / counts[1] for n in counts[1:]]
    return [
        Curve("time", "workers", ARM, "s a step", counts, seconds, planned),
        Curve("memory", "workers", ARM, "MiB", counts[1:], most[1:], on_ray),
    ]


def curves(
    config: ModelConfig, vocabulary: int, batch: int, turns: int, quick: bool
) -> list[Curve]:
    return [*jobs_curves(config, vocabulary, batch, turns, quick), *worker_curves(turns, quick)]


def efficiencies(found: Sequence[Curve]) -> list[Figure]:
    """Of cores in use, against one: speed of n ÷ n, or ÷ the cores where they are fewer."""
    figures = []
    for curve in found:
        if curve.quantity == "time":
            for n, spent in zip(curve.values[1:], curve.measured[1:], strict=True):
                work = n if curve.axis == "JOBS" else 1  # runs, or one batch for all
                speed = work * curve.measured[0] / spent
                title = f"{curve.axis} = {n}: speed against one"
                figures.append(figure(title, [speed], "ratio"))
                title = f"{curve.axis} = {n}: efficiency on {min(n, cores())} cores"
                figures.append(figure(title, [speed / min(n, cores())], "ratio"))
    return figures
