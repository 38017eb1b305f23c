"""Printing: progress bars, lines that do not break them, and tables."""

import os
import sys
from math import inf
from time import perf_counter
from typing import Any

from tqdm import tqdm

from pipelines.host.errors import printable

LOG_SECONDS = 30.0  # between two lines of a log, where no total is known
SECONDS_VARIABLE = "PROGRESS_SECONDS"  # of the environment: seconds between lines in a log
FORMAT = "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt} left {remaining}{postfix}"


class Bar(tqdm):  # type: ignore[type-arg]
    """A progress bar on a terminal; in a log a line at every tenth, or every PROGRESS_SECONDS."""

    def __init__(self, total: float | None = None, *, disable: bool = False, **options: Any):
        self.in_log = not disable and not sys.stderr.isatty()
        self.options = {"bar_format": FORMAT if total else None, "unit": "it", **options}
        self.began = self.said = perf_counter()
        self.tenth = self.tenths(options.get("initial", 0), total)
        super().__init__(total=total, disable=disable or self.in_log, **options)

    @staticmethod
    def tenths(n: float, total: float | None) -> float:
        return 10 * n // total if total else -inf

    def update(self, n: float | None = 1) -> bool | None:
        if not self.in_log:
            return super().update(n)
        self.n += n or 0
        now = perf_counter()
        tenth = self.tenths(self.n, self.total)
        interval = float(os.environ.get(SECONDS_VARIABLE) or (inf if self.total else LOG_SECONDS))
        due = tenth > self.tenth or now - self.said >= interval
        if due:
            self.tenth = tenth
            self.said = now
            if now - self.began >= self.options.get("delay", 0):
                print(self.line(now - self.began), file=sys.stderr, flush=True)
        return due

    def line(self, elapsed: float) -> str:
        formats = ("unit", "unit_scale", "bar_format", "initial")
        options = {key: self.options[key] for key in formats if key in self.options}
        words = {"prefix": self.options.get("desc"), "postfix": getattr(self, "postfix", None)}
        return tqdm.format_meter(self.n, self.total or 0, elapsed, **options, **words).strip()


def say(line: str) -> None:
    """Print a line on stderr without breaking a progress bar."""
    tqdm.write(printable(line), file=sys.stderr)


def aligned(rows: list[list[str]], right: bool = False) -> list[str]:
    """Lines of a text table; ``right`` aligns all columns but the first on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if right and i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
