"""Measure a GPU: tests, speed targets, a slice of training.

    python -m perf.gpu --minutes 10
    python -m perf.gpu --rehearse

`make gpu` installs PyTorch's CUDA build first. Each part runs in its own process and for a limited
time, and is written at once to bench/gpu/<date>_<device>.md. If a part fails, its error is
recorded, the others go on, and the exit code is 1. The exit code is also 1 if the minutes were too
few. Called again on the same day, it continues: what was measured at this commit is kept unless it
is named, and the slice trains on from its checkpoints. --rehearse goes through all of it at toy
size on a CPU; what it measures means nothing.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import click
import torch

from perf.parts import Part, is_measured, run_parts
from pipelines.commands import doctor
from pipelines.host.command_line import POSITIVE, command, out_folder, run_command
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT

TIME_TARGET = "time, free ÷ baseline ≤ FLOPs, free ÷ baseline + 0.015"


def gpu_parts(device: str, quick: bool, slice_folder: Path) -> dict[str, Part]:
    toy = ["--quick"] if quick else []
    options = ["--device", device, "--turns", "1" if quick else "5", *toy]
    tests = ["pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "--tb=short"]
    for path in sorted(ROOT.glob("tests/**/test_*.py")):  # to collect all takes half a minute
        if "mark.gpu" in path.read_text(encoding="utf-8"):
            tests.append(str(path))
    decoding = ["perf.decoding", "--device", device, "--turns", "1" if quick else "3", *toy]
    training_slice = ["perf.training_slice", str(slice_folder.resolve()), *toy]
    parts = {
        "tests": Part(tests, 3, "all tests marked `gpu` pass"),
        "step_1_5b": Part(
            ["perf.training", "1.5B", *options],
            4,
            f"model-FLOPs utilisation ≥ 0.40 in bf16; {TIME_TARGET}",
        ),
        "step_124m": Part(["perf.training", "124M", *options], 2, TIME_TARGET),
        "documents": Part(
            ["perf.training", "documents", *options],
            3,
            "FlexAttention ÷ dense mask ≤ 1, in time and memory",
        ),
        "decoding": Part(decoding, 7, "ours ÷ Hugging Face ≥ 2, free ÷ ours ≥ 0.97"),
        "slice": Part(training_slice, 31, "both arms are trained to their end"),
    }
    if quick:  # a busy machine is no failure
        return {name: replace(part, minutes=inf) for name, part in parts.items()}
    return parts


def check_gpu() -> None:
    """Raise UserError unless this PyTorch can use a GPU."""
    found = doctor.gpu()
    if found.state != doctor.OK:
        reason = "no GPU on this machine" if found.value == "none" else found.value
        raise UserError(
            f"{reason}; `make gpu` installs PyTorch for a GPU, "
            "`python -m perf.gpu --rehearse` rehearses on a CPU"
        )


@command(__doc__)
@click.argument("names", help="Parts to run; all that are left if none is named.", nargs=-1)
@click.option(
    "--minutes",
    type=POSITIVE,
    default=50,
    metavar="MINUTES",
    help="Time for all parts; ten minutes suffice for the targets, without the slice.",
)
@click.option("--rehearse", is_flag=True, help="At toy size on a CPU: does it run?")
@out_folder("bench/gpu")
def main(names: Sequence[str], minutes: float, rehearse: bool, out: Path) -> None:
    date = datetime.now(UTC).date().isoformat()
    if rehearse:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        device, name, slice_folder = "cpu", "rehearsal", out / "rehearsed_slice"
        title = f"Rehearsal at toy size on a CPU, {date}: its numbers mean nothing"
    else:
        check_gpu()
        device, name, slice_folder = "cuda", torch.cuda.get_device_name(), out / "slice"
        title = f"{name}, {date}"
    os.environ["GPU_TESTS_ON"] = device  # tests/conftest.py reads it: no test is skipped
    file_name = re.sub(r"\W+", "_", name).strip("_")
    page = out / f"{date}_{file_name}"
    parts = gpu_parts(device, rehearse, slice_folder)
    left = [part for part in parts if not is_measured(page / f"{part}.md")]
    run_parts(parts, names or left, page, title, minutes)


if __name__ == "__main__":
    run_command(main, "python -m perf.gpu")
