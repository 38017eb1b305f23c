"""Shows stages that run side by side: a line for each, and one as it starts or ends."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipelines.host.errors import printable

TAIL_BYTES = 8192  # of a log, in which its last line is looked for
PROGRESS = re.compile(r": +\d+% \S+ left ")  # in a line of host/console.py's Bar
PROGRESS_VARIABLE = {"PROGRESS_SECONDS": "2"}  # how often a stage then writes a line into its log


def last_line(log: Path) -> str:
    """The newest line of a log that is not blank; "" if there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except FileNotFoundError:  # deleted while the stage runs
        return ""
    return next((printable(line) for line in reversed(lines) if line.strip()), "")


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Screen:
    """Shows, on a terminal, the running stages with the newest line of each log; otherwise prints a
    line of progress when it is a new one. A terminal that is closed meanwhile ends no work.
    """

    def __init__(self, total: int) -> None:
        self.console = Console(stderr=True, soft_wrap=True)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.total, self.ended = total, 0
        self.began = monotonic()
        self.shown: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the stages that keep their logs as new as the screen needs."""
        return PROGRESS_VARIABLE if self.console.is_terminal else {}

    @property
    def elapsed(self) -> float:
        return monotonic() - self.began

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with suppress(OSError):
            self.live.stop()

    def say(self, line: str, style: str = "") -> None:
        with suppress(OSError):
            self.console.print(Text(printable(line), style))

    def update(self, logs: Iterable[tuple[str, Path, float]]) -> None:
        """Show the running stages; ``logs`` has name, log and seconds since its start for each."""
        lines = [(name, last_line(log), seconds) for name, log, seconds in logs]
        if not self.console.is_terminal:
            for name, line, _ in lines:
                if PROGRESS.search(line) and self.shown.get(name) != line:
                    self.say(f"{name}: {line}")
                    self.shown[name] = line
            return
        width = max((len(name) for name, _, _ in lines), default=0)
        rows = [
            Text(
                f"{name:{width}}  {duration(seconds):>7}  {line}", no_wrap=True, overflow="ellipsis"
            )
            for name, line, seconds in lines
        ]
        head = f"{self.ended} of {self.total} stages, {duration(self.elapsed)}"
        with suppress(OSError):
            self.live.update(Group(Text(head, "bold"), *rows), refresh=True)
