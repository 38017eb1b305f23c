"""The project's files: where they lie, how they are written whole or not at all, JSON and YAML."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from hashlib import sha256
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import yaml
from filelock import FileLock, Timeout

from pipelines import ROOT as ROOT
from pipelines.host.errors import UserError

SPLITS = ("train", "validation")  # of a corpus and its tokens
BENCHMARKS = Path("data/benchmarks")  # copies of the datasets of benchmarks
JOURNAL = "tracking.jsonl"  # beside a run's checkpoints, during training and after
SPECIAL_CHARACTERS = re.compile(r"""[\s"'\\$&;|<>()*?`!#{}\[\]]""")  # for a shell
NO_FLOCK = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
MAX_POINTER_BYTES = 1024
POINTERS = {  # how a file begins that stands for one outside Git, the program, and its command
    b"version https://git-lfs.github.com/spec/": ("Git LFS", "git lfs pull"),
    b"/annex/objects/": ("git-annex", "git annex get"),
}
MAX_YAML_LEVELS = 50  # Python's recursion limit is some hundred
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def tokens_folder(data: str) -> Path:
    """The token files of an entry under `data`."""
    return Path("data/tokens") / data


def corpus_folder(data: str) -> Path:
    """The documents of an entry under `data`."""
    return Path("data/corpus") / data


def checkpoint_path(experiment: str, run: str, tokens: int | None = None) -> Path:
    """DVC's path of a finished run's last checkpoint, or of its checkpoint at ``tokens`` tokens."""
    return Path("checkpoints") / experiment / run / f"{tokens or 'last'}.ckpt"


def resume_folder(experiment: str, run: str) -> Path:
    """Where an unfinished run has a folder for each specification (see Manifest.resume). DVC does
    not know them, because it deletes a stage's outputs before it runs the stage (it keeps outputs
    marked to persist, but then it caches no earlier run).
    """
    return Path("resume") / experiment / run


def published_journal(experiment: str, run: str) -> Path:
    """The journal of a trained run."""
    return checkpoint_path(experiment, run).with_name(JOURNAL)


def results_folder(experiment: str, run: str) -> Path:
    """The folder of a run's training curve, and of its evaluation's and suite's results."""
    return Path("results") / experiment / run


def report_folder(experiment: str) -> Path:
    return Path("report") / experiment


def special_path(paths: Iterable[str]) -> str | None:
    """The first path that a shell would not read as one word."""
    return next((path for path in paths if SPECIAL_CHARACTERS.search(path)), None)


def check_project_folder() -> None:
    """Raise UserError unless the current folder is the project's."""
    here = Path.cwd()
    if not here.samefile(ROOT):
        raise UserError(f"{here} is not the project's folder: go to {ROOT}")


def check_writable(folder: Path) -> None:
    """Create ``folder``; raise UserError if no file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from None


def has_flock(folder: Path) -> bool:
    """Whether files in ``folder`` can be locked: Lustre and NFS may be mounted without it."""
    with TemporaryFile(dir=folder) as file:
        try:
            flock(file, LOCK_EX)
        except OSError as error:
            if error.errno not in NO_FLOCK:
                raise
            return False
    return True


def lock_file(path: Path) -> Path:
    """The file to lock for ``path``: itself, or where its storage cannot lock files one of this
    machine, so that commands on other machines are not noticed.
    """
    if not path.parent.is_dir() or has_flock(path.parent):
        return path
    name = sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return Path(f"/tmp/ftlab-{os.getuid()}-{name}.lock")


def check_content(path: Path) -> None:
    """Raise UserError if a file is only the note that Git LFS or git-annex keeps of it in Git; may
    raise OSError.
    """
    if path.stat().st_size > MAX_POINTER_BYTES:
        return
    with open(path, "rb") as file:
        head = file.read(64)
    for start, (program, command) in POINTERS.items():
        if head.startswith(start):
            raise UserError(
                f"{path}: a pointer of {program}, not the file itself; `{command}` fetches that"
            )


def lock_of(target: Path) -> FileLock:
    """The lock that a process holds while it is ``alone`` with ``target``."""
    return FileLock(lock_file(target.with_name(f".{target.name}.lock")))


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Let one process at a time write ``target``.

    When DVC is killed its stage lives on, and the next `dvc repro` starts a second process, which
    waits here.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_of(target)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"waiting for another process that is writing {target}", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def replace_file(target: Path) -> Iterator[BinaryIO]:
    """A new file that replaces ``target`` only when the block ends without error and its content is
    on the disk: a full disk, a kill or a power cut leaves no half-written file there.
    """
    partial = target.with_name(target.name + ".partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_file(target: Path, content: str | bytes) -> None:
    """Write all of a file or nothing."""
    with replace_file(target) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replace_folder(target: Path, keep: bool = False) -> Iterator[Path]:
    """A new folder that replaces ``target`` only when the block ends without error. With ``keep``,
    a block that was cut short leaves its files for the next one, which has to check them.
    """
    partial = target.with_name(target.name + ".partial")
    with alone(target):
        if not keep:
            shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, exist_ok=keep)
        try:
            yield partial
        except BaseException:
            if not keep:
                shutil.rmtree(partial, ignore_errors=True)
            raise
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)


def dumps(value: Any, **options: Any) -> str:
    """Standard JSON. Many readers refuse NaN and infinity, so these become null."""
    return json.dumps(without_nan(value), allow_nan=False, **options)


def without_nan(value: Any) -> Any:
    """Plain data with null for each number that is not finite."""
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def read_yaml(path: Path) -> str:
    """The text of a YAML file that people write. Raises UserError with the file and what is wrong
    if it cannot be read, is not UTF-8 or YAML, is too deep or contains itself; FileNotFoundError if
    there is none.
    """
    try:
        text = path.read_bytes().decode()
        check_nesting(text)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}: line {line}: not UTF-8 ({error.reason})") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    return text


def check_nesting(text: str) -> None:
    """Raise ValueError if YAML is nested too deeply, or without end by an anchor in itself."""
    open_anchors: list[str | None] = []
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            if len(open_anchors) > MAX_YAML_LEVELS:
                raise ValueError(f"line {line}: nested more than {MAX_YAML_LEVELS} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            open_anchors.pop()
        elif isinstance(event, yaml.AliasEvent) and event.anchor in open_anchors:
            raise ValueError(f"line {line}: *{event.anchor} contains itself")
