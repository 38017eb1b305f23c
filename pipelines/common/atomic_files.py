"""Files and folders that are there whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

ROOT = Path(__file__).parents[2]


@contextmanager
def alone(target: Path) -> Iterator[bool]:
    """Let one process at a time write ``target``; gives whether another one had to be waited for.

    When DVC is killed its stage lives on, and the next `dvc repro` starts a second one: that one
    waits here, and has to tell whether the work is done then.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{target}.lock")
    waited = False
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waited = True
        print(f"waiting for another process that is writing {target}", flush=True)
        lock.acquire()
    try:
        yield waited
    finally:
        lock.release()


@contextmanager
def replace_file(target: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``target`` only when the block ends without error and its
    content is on the disk: a full disk, a kill or a power cut leaves no half of a file there.
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


@contextmanager
def replace_folder(target: Path, keep: bool = False) -> Iterator[Path]:
    """A new folder that takes the place of ``target`` only when the block ends without error.

    With ``keep``, what a block that was cut short has left there waits for the next one, which has
    to tell what of it is still good.
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
