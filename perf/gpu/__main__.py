"""All that is to be known of a GPU, in one dated file: tests, speed targets, a slice of training.

    python -m perf.gpu --minutes 10
    python -m perf.gpu --rehearse

`make gpu` installs PyTorch's CUDA build first. Each part runs in a process of its own and for a
limited time, and is written at once to bench/gpu/<date>_<device>.json and .md. One that fails is
recorded with its error, the others go on, and the exit code is 1; so it is where the minutes were
too few. Called again on the same day, it goes on: what was measured at this commit is kept, unless
it is named, and the slice trains for the rest of its minutes. --rehearse goes through all of it at
toy size on a CPU; those figures mean nothing.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from perf.__main__ import in_a_line
from perf.alone import alone
from perf.gpu import record
from pipelines import cli, doctor
from pipelines.common.errors import UserError

SLICE = "perf.gpu.training_slice"


@dataclass(frozen=True)
class Part:
    """A benchmark, what its ``measure`` is given, and for how many minutes at most it runs."""

    module: str
    minutes: float
    target: str
    given: dict[str, Any] = field(default_factory=dict)
    turns: int = 5
    goes_on: bool = False  # called again, it does what is left to do

    @property
    def is_slice(self) -> bool:
        return self.module == SLICE


def step(preset: str, minutes: float, target: str) -> Part:
    return Part("perf.gpu.training_step", minutes, target, {"preset": preset})


def decode(shape: str) -> Part:
    target = "ours ÷ Hugging Face ≥ 2, free ÷ ours ≥ 0.97"
    return Part("perf.decoding", 3, target, {"only": shape}, turns=3)


def arm(name: str) -> Part:
    return Part(SLICE, 11, "its half of the 20 minutes", {"arm": name}, goes_on=True)


RATIO = "time, free ÷ baseline ≤ FLOPs, free ÷ baseline + 0.015"
PARTS = {
    "tests": Part("perf.gpu.gpu_tests", 3, "all tests marked `gpu` pass"),
    "step_1_5b": step("1.5 B", 4, f"model-FLOPs utilisation ≥ 0.40 in bf16; {RATIO}"),
    "step_124m": step("124 M", 3, RATIO),
    "decode_small": decode("small"),
    "decode_middle": decode("middle"),
    "decode_large": decode("large"),
    "text": Part(SLICE, 9, "text for the slice of kappa_124m"),
    "slice_baseline": arm("baseline"),
    "slice_free": arm("free"),
}


def find_gpu() -> None:
    """Raise UserError if there is none that this PyTorch can use."""
    found = doctor.gpu()
    if found.state != doctor.OK:
        reason = "no GPU on this machine" if found.value == "none" else found.value
        raise UserError(
            f"{reason}; `make gpu` installs PyTorch for a GPU, "
            "`python -m perf.gpu --rehearse` rehearses on a CPU"
        )


def limit(names: list[str], left: float) -> float:
    """Seconds for the first of the parts still to come, of ``left`` for all: what it may take at
    most; but the parts of the slice have equal shares.
    """
    part = PARTS[names[0]]
    parts = sum(PARTS[name].is_slice for name in names) if part.is_slice else 1
    return min(60 * part.minutes, left / parts)


def measured(entry: dict[str, Any] | None, commit: str | None) -> bool:
    return entry is not None and "figures" in entry and entry["commit"] == commit


def measure(name: str, rehearse: bool, seconds: float, out: Path, stem: str) -> dict[str, Any]:
    part = PARTS[name]
    given = {**part.given, "device": "cpu" if rehearse else "cuda"}
    if part.is_slice:
        folder = out / ("rehearsed_slice" if rehearse else "slice")
        given |= {"project": str(folder.resolve()), "seconds": seconds}
    turns = 1 if rehearse else part.turns
    return alone(part.module, turns, rehearse, out, limit=seconds, stem=stem, **given)


def main(names: Sequence[str], minutes: float, rehearse: bool, out: Path) -> None:
    begun = perf_counter()
    if unknown := [name for name in names if name not in PARTS]:
        raise UserError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if rehearse:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # of this process and those of the parts
        print(record.REHEARSAL, file=sys.stderr)
    else:
        find_gpu()
    head = record.header(rehearse)
    path = record.path_of(head, out)
    done = record.read(path)
    out.mkdir(parents=True, exist_ok=True)
    asked = {name: part.target for name, part in PARTS.items()}
    todo = list(names) or [
        name
        for name, part in PARTS.items()
        if part.goes_on or not measured(done.get(name), head["commit"])
    ]
    failed = False
    while todo:
        name = todo[0]
        seconds = limit(todo, 60 * minutes - (perf_counter() - begun))
        if seconds > 0:
            entry = measure(name, rehearse, seconds, out, f"{path.name}_{name}")
            line = f"{in_a_line(entry)}; {entry['seconds']:.0f} s"
            failed |= "figures" not in entry
            if "figures" not in entry and measured(done.get(name), head["commit"]):
                done[name]["later"] = record.why_not(entry)
            else:
                done[name] = entry
        else:
            line = f"not begun: the {minutes:g} minutes are over"
            failed = True
        order = [each for each in PARTS if each in done]
        record.write(path, head | {"parts": {each: done[each] for each in order}}, asked)
        print(f"{name}: {line}", file=sys.stderr, flush=True)
        todo = todo[1:]
    print(path.with_suffix(".md"))
    sys.exit(failed)


if __name__ == "__main__":
    cli.run("gpu")
