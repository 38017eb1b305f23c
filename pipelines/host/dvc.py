"""Runs DVC where it would fail by itself: in no activated environment, in a folder outside git,
beside another of its commands, or after a kill has truncated its files.
"""

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

DVC_TMP = Path(".dvc/tmp")
REPRO_LOCK, REPRO_PID = DVC_TMP / "repro.lock", DVC_TMP / "repro.pid"
RWLOCK, LOCKFILE = DVC_TMP / "rwlock", Path("dvc.lock")


def dvc_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dvc", *arguments]


def dvc_environment() -> dict[str, str]:
    """This process's environment, in which the `python` of dvc.yaml's commands is this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path}


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
    """Let DVC work in a folder outside git, such as a copy or an archive; returns whether that had
    to be configured.
    """
    local = folder / ".dvc/config.local"
    if in_git(folder):
        return False
    if local.exists() and "no_scm" in local.read_text(encoding="utf-8"):
        return False
    command = dvc_command("config", "--quiet", "--local", "core.no_scm", "true")
    subprocess.run(command, cwd=folder, check=True)
    return True


@contextmanager
def pipeline_alone(wait: bool = True) -> Iterator[int]:
    """Hold this folder's pipeline as soon as no other `make repro` and no DVC command works in it.
    Yields the lock's file descriptor; the lock is held for as long as any process has it open.

    Names who is at work while it waits. Without ``wait``, raises UserError if anybody is.
    """
    DVC_TMP.mkdir(parents=True, exist_ok=True)
    said = ""
    with open(REPRO_LOCK, "ab") as file:
        while who := acquire(file) or dvc_at_work():
            if not wait:
                raise UserError(
                    f"{who} is at work in this folder; run this again when it has ended"
                )
            if who != said:
                say(f"waiting for {who}, which is at work in this folder")
            said = who
            sleep(1)
        REPRO_PID.write_text(str(os.getpid()), encoding="utf-8")
        try:
            yield file.fileno()
        finally:
            REPRO_PID.unlink(missing_ok=True)


def acquire(file: BinaryIO) -> str:
    """Try to take the lock; returns in words who holds it instead, or ""."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        with suppress(OSError, ValueError):
            if who := describe_process("make repro", int(REPRO_PID.read_text(encoding="utf-8"))):
                return who
        return "what an interrupted make repro has left running"
    return ""


def dvc_at_work() -> str:
    """Name the DVC command that works here; "" if there is none.

    DVC holds its lock except while a stage's command runs; then rwlock has the stage's outputs.
    """
    with suppress(OSError, ValueError, LookupError, AttributeError):
        rwlock = json.loads(RWLOCK.read_bytes())
        readers = [info for infos in rwlock.get("read", {}).values() for info in infos]
        for info in [*rwlock.get("write", {}).values(), *readers]:
            if words := describe_process("dvc", int(info["pid"])):
                return words
    try:
        with open(DVC_TMP / "lock", "rb+") as file:
            pid = file.read().split()
            flock(file, LOCK_EX | LOCK_NB)
    except FileNotFoundError:
        return ""
    except BlockingIOError:
        words = describe_process("dvc", int(pid[0])) if pid else ""
        return words or "dvc"
    return ""


def describe_process(what: str, pid: int) -> str:
    """A process and the stage that it runs, in words; "" if it has ended."""
    try:
        process = psutil.Process(pid)
        words = f"{what} ({pid_and_start(process)}"
        children = process.children(recursive=True)
    except psutil.Error:
        return ""
    for child in children:
        with suppress(psutil.Error):  # it has ended meanwhile
            if stage := stage_of(child.cmdline()):
                words += f"; stage {stage}, {pid_and_start(child)}"
                break
    return f"{words})"


def pid_and_start(process: psutil.Process) -> str:
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


def repair() -> None:
    """Delete files that a kill has truncated, while nobody is at work: DVC cannot read them, and
    finds outputs in its cache.
    """
    try:
        json.loads(RWLOCK.read_bytes())
    except FileNotFoundError:
        pass
    except ValueError:
        RWLOCK.unlink()
    if LOCKFILE.exists() and not is_intact(LOCKFILE):
        LOCKFILE.unlink()
        say(f"{LOCKFILE} was truncated, as by a kill: it is rebuilt from what DVC has cached")


def is_intact(lockfile: Path) -> bool:
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
