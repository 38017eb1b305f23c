"""Starts DVC with this Python, even where no environment is activated."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from time import sleep
from typing import BinaryIO

import psutil

from pipelines.host.console import say
from pipelines.host.errors import UserError


def dvc_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dvc", *arguments]


def dvc_environment() -> dict[str, str]:
    """This process's environment, in which the `python` of dvc.yaml's commands is this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path}


# Lets DVC work in a folder outside git, such as a copy or an archive, or refused by git.


def in_git(folder: Path) -> bool:
    above = folder.resolve()
    return any((path / ".git").exists() for path in (above, *above.parents))


def git_refusal(folder: Path) -> str | None:
    """Why git refuses the repository around ``folder``, and how to fix that, in git's words. Say,
    another user owns it, because a container mounted it. None without git or a repository.
    """
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--git-dir"], cwd=folder, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    if asked.returncode == 0 or not in_git(folder):
        return None
    return f"git: {' '.join(asked.stderr.decode(errors='replace').split())}"


def check_git() -> None:
    """Raise UserError where DVC would fail after its first stage, or its last."""
    if reason := git_refusal(Path()):
        raise UserError(reason)


def allow_no_git(folder: Path) -> bool:
    """Let DVC work in ``folder`` without git; returns whether that had to be configured."""
    local = folder / ".dvc/config.local"
    if in_git(folder):
        return False
    if local.exists() and "no_scm" in local.read_text(encoding="utf-8"):
        return False
    command = dvc_command("config", "--quiet", "--local", "core.no_scm", "true")
    subprocess.run(command, cwd=folder, check=True)
    return True


# Lets one `make repro` at a time work in a folder, and tells which other DVC commands do.

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
    if not module.startswith("pipelines.") or module == "pipelines.cli":
        return ""
    return " ".join((module.removeprefix("pipelines."), *arguments))


# Repairs DVC files truncated by a kill.

RWLOCK, LOCKFILE = Path(".dvc/tmp/rwlock"), Path("dvc.lock")


def repair() -> None:
    """Delete files that DVC cannot read, while nobody is at work; it finds outputs in its cache."""
    try:
        json.loads(RWLOCK.read_bytes())
    except FileNotFoundError:
        pass
    except ValueError:
        RWLOCK.unlink()
    if LOCKFILE.exists() and not intact(LOCKFILE):
        LOCKFILE.unlink()
        say(f"{LOCKFILE} was truncated, as by a kill: it is rebuilt from what DVC has cached")


def intact(lockfile: Path) -> bool:
    """Whether dvc.lock is readable and its last line complete: part of a line may be valid YAML."""
    from dvc.dvcfile import Lockfile  # a second to import
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(".") as repo:
            Lockfile(repo, str(lockfile)).load()
    except DvcException:
        return False
    return lockfile.read_bytes().endswith(b"\n")
