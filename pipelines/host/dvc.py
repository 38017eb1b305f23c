"""Runs DVC where it would fail by itself: in no activated environment, in a folder outside git, on
storage that cannot lock files, beside another of its commands, or after a kill has truncated its
files. Keeps it from deleting what other experiments have made.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from time import sleep
from typing import Any, BinaryIO

import psutil

from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.files import has_flock, lock_file

DVC_TMP = Path(".dvc/tmp")
REPRO_LOCK, REPRO_PID = DVC_TMP / "repro.lock", DVC_TMP / "repro.pid"
RWLOCK, LOCKFILE = DVC_TMP / "rwlock", Path("dvc.lock")
EXPERIMENTS = DVC_TMP / "exps"
OUTPUT_FOLDERS = ("checkpoints", "data", "report", "results")
DVC_LOCKS = (DVC_TMP / "lock", DVC_TMP / "rwlock.lock", EXPERIMENTS / "rwlock.lock")
DAMAGED = DVC_TMP / "dvc.lock.damaged"
CLOCK_SECONDS = 5.0  # by which a process's start and a file's time may disagree
CONFLICT = re.compile(rb"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
STAGE = re.compile(rb"^  (?=\S)", re.MULTILINE)  # where a stage begins in dvc.lock
LAST_LINE = re.compile(rb"^ +(size|nfiles): \d+$", re.MULTILINE)  # of a stage that is complete
SCHEMA = re.compile(rb"^schema: '?(\d+\.\d+)", re.MULTILINE)
MAX_SCHEMA = 2.0  # of dvc.lock


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
    another user owns it, because a container mounted it. Or which folder of outputs is a link out
    of the project, which DVC refuses after a stage's work. None without git or a repository.
    """
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--git-dir"], cwd=folder, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    if not in_git(folder):
        return None
    if asked.returncode:
        return f"git: {' '.join(asked.stderr.decode(errors='replace').split())}"
    for name in OUTPUT_FOLDERS:
        place = (folder / name).resolve()
        if not place.is_relative_to(folder.resolve()):
            return (
                f"{name} leads to {place}, outside this repository, where DVC makes no outputs: "
                "make it a folder; for another disk, `dvc cache dir --local DIR` and `dvc config "
                "--local cache.type symlink`"
            )
    return None


def allow_no_git(folder: Path) -> bool:
    """Let DVC work in a folder outside git, such as a copy or an archive; returns whether that had
    to be configured.
    """
    return not in_git(folder) and configure(folder, "no_scm")


def configure(folder: Path, option: str) -> bool:
    """Switch on an option of DVC in .dvc/config.local, unless that names it already."""
    local = folder / ".dvc/config.local"
    if local.exists() and option in local.read_text(encoding="utf-8"):
        return False
    command = dvc_command("config", "--quiet", "--local", f"core.{option}", "true")
    subprocess.run(command, cwd=folder, check=True)
    return True


@contextmanager
def pipeline_alone(wait: bool = True, what: str = "make repro") -> Iterator[int]:
    """Hold this folder's pipeline as soon as no other command of ours or of DVC works in it. Yields
    the lock's file descriptor; the lock is held for as long as any process has it open.

    Names who is at work while it waits, once; others see this command as ``what``. Without
    ``wait``, raises UserError if anybody is.
    """
    DVC_TMP.mkdir(parents=True, exist_ok=True)
    said = ""
    with open(lock_file(REPRO_LOCK), "ab") as file:
        while who := acquire(file) or dvc_at_work():
            if not wait:
                raise UserError(
                    f"{who} is at work in this folder; run this again when it has ended"
                )
            if who.partition(",")[0] != said:  # its number; what stage it runs changes
                say(f"waiting for {who}, which is at work in this folder")
            said = who.partition(",")[0]
            sleep(1)
        REPRO_PID.write_text(f"{os.getpid()} {what}", encoding="utf-8")
        try:
            with no_experiments(what):
                yield file.fileno()
        finally:
            REPRO_PID.unlink(missing_ok=True)


@contextmanager
def no_experiments(what: str) -> Iterator[None]:
    """Let no `dvc exp run` begin: at first it sets aside what git does not have, params.yaml, too.
    DVC then names this process, as one that has its workspace.
    """
    from dvc.exceptions import DvcException  # a second to import
    from dvc.fs import localfs
    from dvc.rwlock import rwlock

    EXPERIMENTS.mkdir(exist_ok=True)
    workspace = rwlock(str(EXPERIMENTS), localfs, what, [], ["workspace"], uses_hardlinks())
    with ExitStack() as held:
        with suppress(DvcException):  # the notes are damaged, or name a killed one's number
            held.enter_context(workspace)
        yield


def acquire(file: BinaryIO) -> str:
    """Try to take the lock; returns in words who holds it instead, or ""."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        with suppress(OSError, ValueError, psutil.Error):
            pid, _, what = REPRO_PID.read_text(encoding="utf-8").partition(" ")
            return describe_process(what or "make repro", named_process(REPRO_PID, int(pid)))
        return left_running(file.name)
    return ""


def make_repro_at_work() -> str:
    """Name the `make repro`, or what it has left, that has this folder's pipeline; "" if free."""
    path = lock_file(REPRO_LOCK)
    if not path.exists():
        return ""
    with open(path, "ab") as file:
        return acquire(file)


def left_running(lock: str) -> str:
    """Name the stages that a killed make repro has left, which have its lock open."""
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has ended, or it is somebody else's
            if "dvc" in process.cmdline() and any(
                os.path.realpath(lock) == opened.path for opened in process.open_files()
            ):
                left.append(process)
    words = "what an interrupted make repro has left running"
    if not left:
        return words
    # each is the first of a session of its own (parallel/scheduler.py)
    groups = " ".join(f"-{process.pid}" for process in left)
    names = ", ".join(describe_process("dvc", process) for process in left)
    return f"{words} ({names}; `kill -INT -- {groups}` stops it)"


def dvc_at_work() -> str:
    """Name the DVC command that works here; "" if there is none.

    DVC holds its lock except while a stage's command runs; then rwlock has the stage's outputs.
    """
    for info in rwlock_entries():
        with suppress(psutil.Error, OSError):  # it has ended
            command = str(info["cmd"]).rpartition("__main__.py")[2]  # of `python -m dvc`
            process = named_process(RWLOCK, int(info["pid"]), command)
            return describe_process("dvc", process)
    path = DVC_LOCKS[0]
    try:
        content = path.read_bytes()
        if is_hardlink(content):
            return f"dvc (or a killed one's {path}: delete it if no machine runs dvc here)"
        if not has_flock(DVC_TMP):
            return ""
        with open(path, "rb+") as file:
            flock(file, LOCK_EX | LOCK_NB)
    except FileNotFoundError:
        return ""
    except BlockingIOError:
        with suppress(psutil.Error, ValueError, IndexError):
            return describe_process("dvc", psutil.Process(int(content.split()[0])))
        return "dvc"
    return ""


def rwlock_entries() -> list[dict[str, Any]]:
    """What DVC has noted about stages at work: `pid` and `cmd` of each. Empty if it is damaged."""
    with suppress(OSError, ValueError, AttributeError, TypeError):
        rwlock = json.loads(RWLOCK.read_bytes())
        readers = [info for infos in rwlock.get("read", {}).values() for info in infos]
        entries = [*rwlock.get("write", {}).values(), *readers]
        return [info for info in entries if {"pid", "cmd"} <= info.keys()]
    return []


def is_hardlink(content: bytes) -> bool:
    """Whether a lock is held as with core.hardlink_lock: it then has the path of a claim."""
    return content.rstrip().endswith(b".lock")


def named_process(path: Path, pid: int, command: str = "") -> psutil.Process:
    """The process whose number a file has noted. Raises psutil.NoSuchProcess if it has ended, and
    another one may have its number: that has another command, or began after the file was written.
    """
    process = psutil.Process(pid)
    began, noted = process.create_time(), path.stat().st_mtime
    if began > noted + CLOCK_SECONDS or not " ".join(process.cmdline()).endswith(command):
        raise psutil.NoSuchProcess(pid)
    return process


def describe_process(what: str, process: psutil.Process) -> str:
    """A process and the stage that it runs, in words. Raises psutil.Error if it has ended."""
    words = f"{what} ({pid_and_start(process)}"
    for child in process.children(recursive=True):
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
    """Mend what a kill has left, while nobody is at work, so that DVC neither fails nor waits for
    a process that has ended. Raises UserError for a dvc.lock that is damaged otherwise.
    """
    RWLOCK.unlink(missing_ok=True)  # whom it names has ended
    # Lustre mounted without `-o flock`, say
    if not has_flock(DVC_TMP) and configure(Path(), "hardlink_lock"):
        say("no flock on this storage: DVC locks by hard links here (.dvc/config.local)")
    others = [path for path in DVC_LOCKS if path.exists() and not is_hardlink(path.read_bytes())]
    if others and uses_hardlinks():  # DVC would take them for locks that are held
        for path in others:
            path.unlink()
    if LOCKFILE.exists():
        repair_lockfile()


def uses_hardlinks() -> bool:
    from dvc.config import Config

    return bool(Config(str(DVC_TMP.parent))["core"].get("hardlink_lock"))


def repair_lockfile() -> None:
    """Cut a truncated dvc.lock back to its complete stages; DVC finds the last one's outputs in its
    cache. A number may be cut in its last line, too, and the rest is then valid.
    """
    content = LOCKFILE.read_bytes()
    if conflict := CONFLICT.search(content):
        line = content[: conflict.start()].count(b"\n") + 1
        raise UserError(
            f"{LOCKFILE}: conflict markers of git in line {line}; take one side (`git checkout "
            f"--ours {LOCKFILE}`): what the other side has made is in DVC's cache"
        )
    reason = lockfile_error()
    complete = content.endswith(b"\n") or LAST_LINE.fullmatch(content.rpartition(b"\n")[2])
    if not reason and complete:
        return
    if "git-ignored" in reason:
        raise UserError(
            f"{LOCKFILE} is ignored by git, so DVC refuses it; see `git check-ignore -v {LOCKFILE}`"
        )
    if (schema := SCHEMA.search(content)) and float(schema[1]) > MAX_SCHEMA:
        version = schema[1].decode()
        raise UserError(f"{LOCKFILE} has schema {version}, of a later DVC; update DVC")
    DVC_TMP.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(LOCKFILE, DAMAGED)
    stages = [*STAGE.finditer(content)]
    if len(stages) < 2:
        LOCKFILE.unlink()
    else:
        LOCKFILE.write_bytes(content[: stages[-1].start()])
        if lockfile_error():  # what is wrong is not at its end
            shutil.copyfile(DAMAGED, LOCKFILE)
            raise UserError(
                f"{LOCKFILE}: {reason}; mend it, or delete it: outputs are in DVC's cache"
            )
    say(
        f"{LOCKFILE} was truncated, as by a kill: its last stage is looked up in DVC's cache; "
        f"{DAMAGED} is a copy"
    )


def lockfile_error() -> str:
    """Why DVC cannot read dvc.lock, in its words; "" if it can."""
    from dvc.dvcfile import Lockfile  # a second to import
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(".") as repo:
            Lockfile(repo, str(LOCKFILE)).load()
    except DvcException as error:
        return " ".join(str(error).split())
    return ""


def keep_other_experiments() -> None:
    """Keep DVC from deleting what other experiments have made.

    DVC notes which outputs it has made. `dvc checkout`, and so `dvc exp run` and `dvc exp apply`,
    delete those that are no outputs with params.yaml as it is now. This keeps the notes empty.
    """
    if not Path(".dvc/config").exists():
        return
    from dvc.exceptions import DvcException  # a second to import
    from dvc.repo import Repo

    try:
        with Repo(".") as repo:
            notes = Path(repo.state.links.directory) / "cache.db"
    except DvcException:  # without git, say, DVC cannot work here yet
        return
    with closing(sqlite3.connect(notes, timeout=60)) as database, database:
        database.execute(
            "CREATE TRIGGER IF NOT EXISTS keep_outputs AFTER INSERT ON Cache "
            "BEGIN DELETE FROM Cache; END"
        )
        database.execute("DELETE FROM Cache")
