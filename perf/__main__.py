"""Measure speed and memory, side by side.

    python -m perf mapper decoding --quick

Each measurement is a script that prints a table: `python -m perf.decoding` runs one alone. Here
each runs in its own process, and its table replaces the earlier one in perf.md. If one fails, the
others go on, and the exit code is 1.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from perf.measure import QUICK, TURNS
from perf.parts import Part, run_parts
from pipelines.host.command_line import command, out_folder, run_command

SCRIPTS = {
    "mapper": ["perf.mapper"],
    "latent": ["perf.training", "latent"],
    "training": ["perf.training", "llama"],
    "decoding": ["perf.decoding"],
    "side_by_side": ["perf.side_by_side"],
}


@command(__doc__)
@click.argument("names", help="Measurements to make; all if none is named.", nargs=-1)
@TURNS
@QUICK
@out_folder("bench")
def main(names: Sequence[str], turns: int, quick: bool, out: Path) -> None:
    options = ["--turns", str(turns)]
    if quick:
        options.append("--quick")
    parts = {name: Part([*script, *options]) for name, script in SCRIPTS.items()}
    run_parts(parts, names or SCRIPTS, out / "perf", "Speed and memory")


if __name__ == "__main__":
    run_command(main, "python -m perf")
