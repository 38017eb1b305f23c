"""Speed and memory, measured side by side.

    python -m perf mapper decoding --quick

Each measurement runs in a process of its own, so that the memory, threads and compiled code of one
do not touch the next. What each gives is written at once to perf.json and perf.md, in the place of
what it gave before. One that fails is shown with its traceback, the others go on, and the exit code
is 1; one that lacks something is skipped, and that is no failure.
"""

from collections.abc import Sequence
from pathlib import Path

from perf.record import Part, record
from pipelines import cli

NAMES = (
    *("mapper", "cross_entropy", "latent", "training", "products", "decoding"),
    *("pipeline", "growth", "side_by_side", "tokenize"),
)
PARTS = {name: Part(f"perf.{name}") for name in NAMES}


def main(names: Sequence[str], turns: int, quick: bool, out: Path) -> None:
    record(PARTS, names or PARTS, out / "perf", "Speed and memory", quick, turns)


if __name__ == "__main__":
    cli.run("perf")
