"""Repairs DVC files truncated by a kill."""

import json
from pathlib import Path

from dvc.dvcfile import Lockfile
from dvc.exceptions import DvcException
from dvc.repo import Repo

from pipelines.common.console import say

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
    try:
        with Repo(".") as repo:
            Lockfile(repo, str(lockfile)).load()
    except DvcException:
        return False
    return lockfile.read_bytes().endswith(b"\n")
