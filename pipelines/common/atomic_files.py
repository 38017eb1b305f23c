"""Files and folders that are written whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from filelock import FileLock, Timeout

from pipelines import ROOT as ROOT
from pipelines.common.errors import UserError


def check_writable(folder: Path) -> None:
    """Create ``folder``; raise UserError if no file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from None


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Let one process at a time write ``target``.

    When DVC is killed its stage lives on, and the next `dvc repro` starts a second process, which
    waits here.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{target}.lock")
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
