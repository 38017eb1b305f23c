"""What is printed: lines that leave a progress bar whole, and tables."""

import sys

from tqdm import tqdm


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
