"""The command line of a stage: its argument, and lines that leave a progress bar whole."""

import sys

from tqdm import tqdm

from pipelines.common.errors import UserError


def argument(what: str) -> str:
    """The one command-line argument of a stage."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise UserError(f"usage: python -m {module()} <{what}>, as named in params.yaml")
    return sys.argv[1]


def module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__") if spec else sys.argv[0]


def say(line: str) -> None:
    """A line on stderr that leaves a progress bar whole."""
    tqdm.write(line, file=sys.stderr)


def aligned(rows: list[list[str]], right: bool = False) -> list[str]:
    """Lines of a text table; ``right``: all columns but the first end alike."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if right and i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
