"""Training runs side by side, and workers of Ray that share a batch, on the cores of this machine.

docs/performance.md ("Runs and workers side by side") says what is planned. Speeds come from
curve.csv.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from perf.measure import Figure, figure
from pipelines.artifacts.curve import read_curve
from pipelines.host.machine import whole_cores
from tests.support.project_copy import Project

COUNTS = (1, 2, 4)
TURNS = 2  # at most: processes start anew in each
RUN, STEPS, BATCH, CONTEXT = "free_k1", 40, 64, 65
SHAPE = (  # of conf/model/target_small.yaml
    "models.target_small.architecture="
    "{n_layers: 4, d_model: 64, n_heads: 4, n_kv_heads: 4, ffn_width: 168}"
)


def training_speed(projects: Sequence[Project], workers: int, batch: int, steps: int) -> float:
    """Total steps per second of stage train, run in all these projects at once."""
    for project in projects:
        shutil.rmtree(project.folder / "resume", ignore_errors=True)
        project.compose(
            f"compute.workers={workers}",
            *("compute.threads=1", "compute.compile=false", "compute.gpus_per_worker=0"),
            f"runs.{RUN}.tokens={steps * batch * CONTEXT}",
            f"models.target_small.optim.batch_size={batch}",
            SHAPE,
        )
    processes = [project.start("python", "-m", "pipelines.train", RUN) for project in projects]
    said = [process.communicate()[0] for process in processes]
    assert not any(process.returncode for process in processes), said
    total = 0.0
    for project in projects:
        rows = read_curve(project.folder / "results/smoke" / RUN / "curve.csv")
        total += max(row.tokens_per_second for row in rows[1:] or rows) / (batch * CONTEXT)
    return total


def speedups(
    jobs: dict[int, float], workers: dict[int, float], parts: dict[int, float]
) -> list[Figure]:
    """Speed-ups of n runs, and of n workers beside one process with an n-th of their batch."""
    found = []
    for axis, speeds, whole in (("JOBS", jobs, {}), ("workers", workers, parts)):
        for n in list(speeds)[1:]:
            used = min(n, whole_cores())
            planned = whole[n] * used / n if whole else speeds[1] * used
            found += [
                figure(f"{axis} = {n}: speed against one", [speeds[n] / speeds[1]]),
                figure(f"{axis} = {n}: efficiency", [speeds[n] / speeds[1] / used]),
                figure(f"{axis} = {n}: time ÷ planner", [planned / speeds[n]], at_most=1.15),
            ]
    return found


def measure(turns: int, quick: bool) -> list[Figure]:
    counts, steps = (COUNTS[:2], 1) if quick else (COUNTS, STEPS)
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": max(counts)})  # of cores or not
    with TemporaryDirectory() as scratch:
        first = Project(Path(scratch) / "0")
        first.compose()
        for stage in ("data", "tokenize"):
            first.ok("python", "-m", f"pipelines.{stage}", "target")
        projects = [first]
        for n in range(1, max(counts)):
            folder = shutil.copytree(first.folder, Path(scratch) / str(n))
            projects.append(Project(folder, fresh=False))

        def best(n: int, workers: int, batch: int) -> float:
            return max(
                training_speed(projects[:n], workers, batch, steps)
                for _ in range(min(turns, TURNS))
            )

        return speedups(
            {n: best(n, 1, BATCH) for n in counts},
            {n: best(1, n, BATCH) for n in counts},
            {n: best(1, 1, BATCH // n) for n in counts},
        )
