"""Measure a GPU: tests, speed targets, a slice of training.

    python -m perf.gpu --minutes 10
    python -m perf.gpu --rehearse

`make gpu` installs PyTorch's CUDA build first. Everything goes into one dated file. Each part runs
in its own process and for a limited time, and is written at once to bench/gpu/<date>_<device>.json
and .md. If a part fails, its error is recorded, the others go on, and the exit code is 1. The exit
code is also 1 if the minutes were too few. Called again on the same day, it continues: what was
measured at this commit is kept unless it is named, and the slice trains for the rest of its
minutes. --rehearse goes through all of it at toy size on a CPU; those figures mean nothing.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import torch

from perf.record import REHEARSAL, Part, is_measured, read_entries, record
from pipelines.commands import doctor
from pipelines.host.command_line import POSITIVE, command, listed, out_folder, run_command
from pipelines.host.errors import UserError

STEP, DECODING = "perf.gpu.training_step", "perf.decoding"
SLICE = "perf.gpu.training_slice"
STEP_TARGET = "time, free ÷ baseline ≤ FLOPs, free ÷ baseline + 0.015"
DECODING_TARGET = "ours ÷ Hugging Face ≥ 2, free ÷ ours ≥ 0.97"
DOCUMENTS_TARGET = "FlexAttention ÷ dense mask ≤ 1, in time and memory"
SLICE_TARGET = "its half of the 20 minutes"
MFU_TARGET = "model-FLOPs utilisation ≥ 0.40 in bf16"
PARTS = {
    "tests": Part("perf.gpu.gpu_tests", "all tests marked `gpu` pass", 3),
    "step_1_5b": Part(STEP, f"{MFU_TARGET}; {STEP_TARGET}", 4, {"preset": "1.5 B"}),
    "step_124m": Part(STEP, STEP_TARGET, 2, {"preset": "124 M"}),
    "documents": Part("perf.gpu.documents", DOCUMENTS_TARGET, 3),
    "decode_small": Part(DECODING, DECODING_TARGET, 2, {"only": "small"}, turns=3),
    "decode_middle": Part(DECODING, DECODING_TARGET, 2, {"only": "middle"}, turns=3),
    "decode_large": Part(DECODING, DECODING_TARGET, 3, {"only": "large"}, turns=3),
    "text": Part(SLICE, "text for the slice of kappa_124m", 9),
    "slice_baseline": Part(SLICE, SLICE_TARGET, 11, {"arm": "baseline"}, goes_on=True),
    "slice_free": Part(SLICE, SLICE_TARGET, 11, {"arm": "free"}, goes_on=True),
}


def find_gpu() -> None:
    """Raise UserError unless this PyTorch can use a GPU."""
    found = doctor.gpu()
    if found.state != doctor.OK:
        reason = "no GPU on this machine" if found.value == "none" else found.value
        raise UserError(
            f"{reason}; `make gpu` installs PyTorch for a GPU, "
            "`python -m perf.gpu --rehearse` rehearses on a CPU"
        )


@command(__doc__)
@click.argument(
    "names",
    help="Parts to run; all that are left if none is named.",
    shell_complete=listed("perf.gpu.__main__", "PARTS"),
    nargs=-1,
)
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
    if rehearse:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # of this process and those of the parts
        print(REHEARSAL, file=sys.stderr)
    else:
        find_gpu()
    device, name = ("cpu", "Rehearsal") if rehearse else ("cuda", torch.cuda.get_device_name())
    date = datetime.now(UTC).date().isoformat()
    file = "rehearsal" if rehearse else re.sub(r"\W+", "_", name).strip("_")
    path = out / f"{date}_{file}"
    project = {"project": str((out / ("rehearsed_slice" if rehearse else "slice")).resolve())}
    parts = {}
    for part_name, part in PARTS.items():
        given = {"device": device, **part.given, **(project if part.module == SLICE else {})}
        parts[part_name] = replace(part, given=given)
    done = read_entries(path, parts)
    todo = [each for each in parts if parts[each].goes_on or not is_measured(done.get(each))]
    turns = 1 if rehearse else None
    record(parts, names or todo, path, f"{name}, {date}", rehearse, turns, minutes)


if __name__ == "__main__":
    run_command(main, "python -m perf.gpu")
