"""Measure training runs side by side, and Ray workers that share a batch, on this machine.

docs/performance.md ("Runs and workers side by side") says what is planned. Speeds come from
curve.csv.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from perf.measure import QUICK, TURNS, Measurement, print_table
from pipelines.artifacts.curve import read_curve
from pipelines.config import compose
from pipelines.host.command_line import command, run_command
from pipelines.host.files import ROOT
from pipelines.host.machine import whole_cores

MAX_TURNS = 2  # processes start anew in each
RUN, STEPS, BATCH, CONTEXT = "free_k1", 40, 64, 65
SHAPE = (  # of conf/model/target_small.yaml
    "models.target_small.architecture="
    "{n_layers: 4, d_model: 64, n_heads: 4, n_kv_heads: 4, ffn_width: 168}"
)


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start one of our modules in a folder that has `conf/`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, stdout=sys.stderr
    )


def compose_smoke(folder: Path, *settings: str) -> None:
    """Compose the experiment in a folder that is not the project's, which the command refuses."""
    with chdir(folder), redirect_stdout(sys.stderr):
        compose.main(["experiment=smoke", *settings])


def finish(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    assert not any([process.wait() for process in processes]), "a process failed; see above"


def training_speed(folders: Sequence[Path], workers: int, batch: int, steps: int) -> float:
    """Total steps per second of stage train, run in all these folders at once."""
    for folder in folders:
        shutil.rmtree(folder / "resume", ignore_errors=True)
        settings = [
            f"compute.workers={workers}",
            "compute={threads: 1, compile: false, gpus_per_worker: 0}",
            f"runs.{RUN}.tokens={steps * batch * CONTEXT}",
            f"models.target_small.optim={{batch_size: {batch}, warmup_steps: 0}}",
            SHAPE,
        ]
        compose_smoke(folder, *settings)
    finish([start(folder, "pipelines.train", RUN) for folder in folders])
    total = 0.0
    for folder in folders:
        rows = read_curve(folder / "results/smoke" / RUN / "curve.csv")
        # the first row has the start of the process in it
        total += max(row.tokens_per_second for row in rows[1:] or rows) / (batch * CONTEXT)
    return total


def beside_plan(name: str, speed: float, one: float, planned: float) -> list[Measurement]:
    """Compare steps per second with one run or worker, and with the planned speed."""
    return [
        Measurement(f"{name}: speed against one", [speed / one], "ratio"),
        Measurement(f"{name}: time ÷ planner", [planned / speed], "ratio", at_most=1.15),
    ]


@command(__doc__)
@TURNS
@QUICK
def main(turns: int, quick: bool) -> None:
    counts, steps = ((2,), 1) if quick else ((2, 4), STEPS)
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": max(counts)})  # of cores or not
    with TemporaryDirectory() as scratch:
        folders = [Path(scratch) / str(n) for n in range(max(counts))]
        first = folders[0]
        first.mkdir()
        (first / "conf").symlink_to(ROOT / "conf")
        compose_smoke(first)
        finish([start(first, "pipelines.data", "target")])
        finish([start(first, "pipelines.tokenize", "target")])
        for other in folders[1:]:
            shutil.copytree(first, other, symlinks=True)

        def best(n_runs: int, workers: int, batch: int) -> float:
            repeats = range(min(turns, MAX_TURNS))
            return max(training_speed(folders[:n_runs], workers, batch, steps) for _ in repeats)

        one, found = best(1, 1, BATCH), []
        for n in counts:
            cores = min(n, whole_cores())
            found += beside_plan(f"JOBS = {n}", best(n, 1, BATCH), one, one * cores)
            # a worker has its part of the batch
            planned = best(1, 1, BATCH // n) * cores / n
            found += beside_plan(f"workers = {n}", best(1, n, BATCH), one, planned)
    print_table(found, quick)


if __name__ == "__main__":
    run_command(main, "python -m perf.side_by_side")
