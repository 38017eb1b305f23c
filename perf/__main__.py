"""Measure speed and memory, side by side.

    python -m perf mapper decoding --quick

Each measurement runs in its own process, so that its memory, threads and compiled code do not
affect the next. Results are written at once to perf.json and perf.md, in place of the earlier ones.
If a measurement fails, its traceback is shown, the others go on, and the exit code is 1.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from perf.record import Part, record
from pipelines.host.command_line import COUNT, command, listed, out_folder, run_command

NAMES = ("mapper", "latent", "training", "decoding", "side_by_side", "tokenize")
PARTS = {name: Part(f"perf.{name}") for name in NAMES}


@command(__doc__)
@click.argument(
    "names",
    help="Measurements to make; all if none is named.",
    shell_complete=listed("perf.__main__", "PARTS"),
    nargs=-1,
)
@click.option("--turns", type=COUNT, default=5, help="Repetitions; a figure is their median.")
@click.option("--quick", is_flag=True, help="Tiny shapes: does it run?")
@out_folder("bench")
def main(names: Sequence[str], turns: int, quick: bool, out: Path) -> None:
    record(PARTS, names or PARTS, out / "perf", "Speed and memory", quick, turns)


if __name__ == "__main__":
    run_command(main, "python -m perf")
