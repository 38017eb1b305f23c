"""What every stage does first and last: its argument, its entry in params.yaml, its files."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from pipelines.errors import UserError
from pipelines.schema import Experiment, load_experiment


def argument(what: str) -> str:
    """The one command-line argument of a stage."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise UserError(f"usage: python -m {module()} <{what}>, as named in params.yaml")
    return sys.argv[1]


def module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else sys.argv[0]


def load_stage(group: str, name: str) -> Experiment:
    """The validated experiment; raises UserError unless ``name`` is in its ``group``."""
    experiment = load_experiment()
    known = getattr(experiment, group)
    if name not in known:
        raise UserError(f"{name!r} is not under {group} in params.yaml: {', '.join(known)}")
    return experiment


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Let one process at a time write ``target``.

    When DVC is killed its stage lives on, and the next `dvc repro` starts a second one: that one
    waits here, and then finds the work done.
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
def replace_folder(target: Path) -> Iterator[Path]:
    """A new folder that takes the place of ``target`` only when the block ends without error."""
    partial = target.with_name(target.name + ".partial")
    with alone(target):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
