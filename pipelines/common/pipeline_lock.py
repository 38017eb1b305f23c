"""Lets one `make repro` at a time work in a folder, and tells which other DVC commands do."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from time import sleep
from typing import BinaryIO

import psutil

from pipelines.common.console import say
from pipelines.common.errors import UserError

FOLDER = Path(".dvc/tmp")
LOCK, HOLDER = FOLDER / "repro.lock", FOLDER / "repro.pid"


@contextmanager
def pipeline_alone(wait: bool = True) -> Iterator[int]:
    """Hold this folder's pipeline as soon as no other process does. Yields the lock's file
    descriptor; the lock is held for as long as any process has it open.

    Names who is at work while it waits. Without ``wait``, raises UserError if anybody is.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    said = ""
    with open(LOCK, "ab") as file:
        while who := acquire(file) or dvc_at_work():
            if not wait:
                raise UserError(
                    f"{who} is at work in this folder; run this again when it has ended"
                )
            if who != said:
                say(f"waiting for {who}, which is at work in this folder")
            said = who
            sleep(1)
        HOLDER.write_text(str(os.getpid()), encoding="utf-8")
        try:
            yield file.fileno()
        finally:
            HOLDER.unlink(missing_ok=True)


def acquire(file: BinaryIO) -> str:
    """Try to take the lock; returns in words who holds it instead, or ""."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        with suppress(OSError, ValueError):
            if who := described("make repro", int(HOLDER.read_text(encoding="utf-8"))):
                return who
        return "what an interrupted make repro has left running"
    return ""


def dvc_at_work() -> str:
    """Name the DVC command that works here; "" if there is none.

    DVC holds its lock except while a stage's command runs; then rwlock has the stage's outputs.
    """
    with suppress(OSError, ValueError, LookupError, AttributeError):
        rwlock = json.loads((FOLDER / "rwlock").read_bytes())
        readers = [info for infos in rwlock.get("read", {}).values() for info in infos]
        for info in [*rwlock.get("write", {}).values(), *readers]:
            if words := described("dvc", int(info["pid"])):
                return words
    try:
        with open(FOLDER / "lock", "rb+") as file:
            holder = file.read().split()
            flock(file, LOCK_EX | LOCK_NB)
    except FileNotFoundError:
        return ""
    except BlockingIOError:
        return (described("dvc", int(holder[0])) if holder else "") or "dvc"
    return ""


def described(what: str, pid: int) -> str:
    """A process and the stage that it runs, in words; "" if it has ended."""
    try:
        process = psutil.Process(pid)
        words, children = f"{what} ({identity(process)}", process.children(recursive=True)
    except psutil.Error:
        return ""
    for child in children:
        with suppress(psutil.Error):  # it has ended meanwhile
            if stage := stage_of(child.cmdline()):
                words += f"; stage {stage}, {identity(child)}"
                break
    return f"{words})"


def identity(process: psutil.Process) -> str:
    began = datetime.fromtimestamp(process.create_time())
    return f"pid {process.pid}, since {began:%Y-%m-%d %H:%M:%S}"


def stage_of(command: list[str]) -> str:
    """The stage in a command: `train baseline` for python -m pipelines.train baseline, else ""."""
    if "-m" not in command[1:-1]:
        return ""
    module, *arguments = command[command.index("-m") + 1 :]
    if not module.startswith("pipelines.") or module == "pipelines.repro":
        return ""
    return " ".join((module.removeprefix("pipelines."), *arguments))
