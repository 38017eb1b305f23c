"""Unfinished work on a corpus: it goes on where settings, code and the text read so far are the
same, and is set aside where they are not, for when they are again.

<name>.partial             parts/ and ledger.sqlite of the work under way
<name>.partial.<hash>      the same, set aside; the last MAX_SET_ASIDE of them
"""

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.artifacts.corpus import part_path
from pipelines.common.errors import UserError
from pipelines.common.source_code import code_version
from pipelines.config.data import TextData
from pipelines.data.ledger import UNUSABLE, Ledger, primary
from pipelines.data.sources.base import Source

LEDGER, PARTS_FOLDER = "ledger.sqlite", "parts"
MAX_SET_ASIDE = 3


class Damaged(Exception):
    """Unfinished work that nothing can go on from."""


def specification(data: TextData) -> dict[str, str]:
    """All settings that decide a corpus, except for files, ``pattern`` and ``exclude``, which the
    sources compare.
    """
    entry = {**asdict(data), "vocab_size": None, "tokenizer": None, "end_of_text": None}
    for part in entry["parts"].values():
        for name in ("pattern", "exclude"):
            part.pop(name, None)
    settings = sha256(dumps(entry).encode()).hexdigest()
    return {"settings": settings, "code": code_version("data"), "pyarrow": pa.__version__}


def open_ledger(
    name: str, work: Path, spec: dict[str, str], sources: Mapping[str, Source]
) -> Ledger:
    """The ledger of work to go on with, in ``work`` then, or of new work. Prints what becomes of
    work that is there; raises UserError if its ledger cannot be read now, as it is locked perhaps.
    """
    try:
        state = read_state(work)
    except Damaged as error:
        print(f"{error}; the corpus is made from its beginning", flush=True)
        state = {}
    if state and not (reason := misfit(state, spec, sources)):
        return Ledger(work / LEDGER)
    earlier = fitting_aside(work, spec, sources)
    if state:
        set_aside(name, work, state, reason, kept=earlier)
    else:
        shutil.rmtree(work, ignore_errors=True)
    if earlier:
        print(f"{name}: takes up the work set aside as {earlier}", flush=True)
        earlier.rename(work)
    else:
        (work / PARTS_FOLDER).mkdir(parents=True)
    return Ledger(work / LEDGER)


def read_state(work: Path) -> dict[str, Any]:
    """A ledger's state, empty before a finished part; raises Damaged, or UserError if locked."""
    path = work / LEDGER
    begun = any((work / PARTS_FOLDER).glob("*"))
    if not path.exists() and not begun:
        return {}
    try:
        with closing(Ledger(path)) as ledger:
            state = ledger.state()
    except sqlite3.DatabaseError as error:
        if primary(error) not in UNUSABLE:
            raise UserError(f"{path}: {error} ({error.sqlite_errorname}); work is kept") from None
        raise Damaged(f"{path}: {error}") from None
    if begun and not state:
        raise Damaged(f"{path}: no part is noted as finished")
    for split, count in state.get("parts", {}).items():
        for number in range(count):
            if not (part := part_path(work / PARTS_FOLDER, split, number)).exists():
                raise Damaged(f"{part} is missing")
    return state


def misfit(
    state: dict[str, Any], spec: dict[str, str], sources: Mapping[str, Source]
) -> str | None:
    """Why work cannot go on from a ledger's state; None if it can."""
    before = state["specification"]
    if before != spec:
        known = before if isinstance(before, dict) else {"settings": spec["settings"]}
        changed = [key for key, value in spec.items() if known.get(key) != value]
        return f"changed since it was begun: {', '.join(changed)}"
    for part, source in sources.items():
        if not source.fits(state["positions"][part]):
            return f"what was read of {part} has changed"
    return None


def asides(work: Path) -> list[Path]:
    """Work that was set aside, the latest first."""
    folders = (path for path in work.parent.glob(f"{work.name}.????????") if path.is_dir())
    return sorted(folders, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def set_aside(
    name: str, work: Path, state: dict[str, Any], reason: str | None, kept: Path | None
) -> None:
    """Rename unfinished work; of more than MAX_SET_ASIDE beside ``kept`` remove the oldest."""
    identity = dumps([state["specification"], state["positions"]])
    target = work.with_name(f"{work.name}.{sha256(identity.encode()).hexdigest()[:8]}")
    shutil.rmtree(target, ignore_errors=True)  # the same work, further back or as far
    work.rename(target)
    os.utime(target)
    removed = [path for path in asides(work) if path != kept][MAX_SET_ASIDE:]
    for path in removed:
        shutil.rmtree(path)
    count = sum(state["tally"]["documents"].values())
    print(
        f"{name}: {count:,} documents of unfinished work are set aside as {target} ({reason}), to "
        f"go on when that is undone; the last {MAX_SET_ASIDE} such folders are kept"
        + f", {', '.join(map(str, removed))} is removed"
        * bool(removed),
        flush=True,
    )


def fitting_aside(work: Path, spec: dict[str, str], sources: Mapping[str, Source]) -> Path | None:
    """Work set aside that can go on now, if there is any."""
    for path in asides(work):
        try:
            state = read_state(path)
        except (Damaged, UserError):
            continue
        if state and not misfit(state, spec, sources):
            return path
    return None
