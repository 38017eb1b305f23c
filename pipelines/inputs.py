"""Stage `sources`: record the data and code as they are now.

    python -m pipelines.inputs

Writes four things:

    data/inputs/code/                    the code that decides results (host/source_code.py)
    data/inputs/<name>/text.json         fingerprints of the files of an entry, for stage data
    data/inputs/<name>/tokenizer.json    the hash of its tokenizer.json, for stage tokenize
    data/inputs/suite.json               which benchmarks' data are here, for stage suite

DVC runs this at every `dvc repro`, and then the stages whose inputs have changed. So it reads no
large text, asks no network, and imports little. Stage data says what is wrong with an entry. Only
an unknown benchmark is named here, before anything is trained.
"""

import re
import shutil
from collections.abc import Callable, Iterable
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any

import yaml

from pipelines.common.file_listing import (
    FileEntry,
    Folder,
    PinnedFiles,
    by_content_if_small,
    local_files,
)
from pipelines.host.command_line import command, run_command
from pipelines.host.dvc import keep_other_experiments
from pipelines.host.errors import UserError, printable
from pipelines.host.files import read_yaml, write_file
from pipelines.host.source_code import CODE, mirror, stages_reading
from pipelines.suite.benchmark_data import fetched

INPUTS = Path("data/inputs")
MAX_FILES_NAMED = 6  # of changed code
BAD_ENTRY = (AttributeError, KeyError, TypeError, ValueError, re.error)  # of an unvalidated entry


def part_files(key: str, part: dict[str, Any]) -> Iterable[FileEntry] | None:
    """The files of one part; None if its kind of source has none on this machine."""
    match part["source"]:
        case "files":
            return Folder(key, part["root"], part["pattern"], part.get("exclude") or []).entries()
        case "distributions":
            filters = {name: part.get(name) or [] for name in ("leave_out", "exclude")}
            return PinnedFiles(key, part["pins"], pattern=part["pattern"], **filters).entries()
        case "hub":
            return local_files(part["dataset"], part.get("data_files") or [])
    return None


def text_input(key: str, data: dict[str, Any]) -> Any:
    """Number, size and fingerprint of each part's files; None if its source has none."""
    found: dict[str, Any] = {}
    for name, part in (data.get("parts") or {}).items():
        part_key, found[name] = f"{key}.parts.{name}", None
        if (entries := part_files(part_key, part)) is not None:
            content = by_content_if_small(entries)
            if not content.count:
                raise UserError(f"{part_key}: no file is there")
            hashed = {"bytes": content.size, "fingerprint": content.hex()}
            found[name] = {"files": content.count, **hashed}
    return found


def tokenizer_input(key: str, data: dict[str, Any]) -> Any:
    if (path := data.get("tokenizer")) is None:
        return None
    try:
        if not Path(path).is_file():  # a device has no end
            raise UserError(f"{key}.tokenizer: {path} is not a file")
        return {"sha256": sha256(Path(path).read_bytes()).hexdigest()}
    except OSError as error:
        raise UserError(f"{key}.tokenizer: {path} cannot be read ({error.strerror})") from None


def note_input(path: Path, look: Callable[[str, Any], Any], key: str, data: Any) -> None:
    """Write what ``look`` finds; if it finds that something is gone, the file stays."""
    try:
        content = dumps(look(key, data), indent=1).encode() + b"\n"
    except (UserError, *BAD_ENTRY) as error:
        if path.exists():
            if isinstance(error, UserError):
                print(printable(f"{error}; what was made from it before stays"))
            return
        content = b"null\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        write_file(path, content)


def note_suite(suite: Any) -> None:
    """Write data/inputs/suite.json. Raises UserError if a task is unknown, lacks its figure, or
    generates no answers where several are to be drawn. That takes time, so only tasks that have
    changed are checked.
    """
    path = INPUTS / "suite.json"
    try:
        tasks, several = suite.get("tasks") or {}, suite.get("pass_at_k") or {}
        named = {name: str(task["task"]) for name, task in tasks.items()}
        keys = {name: str(task["key"]) for name, task in tasks.items()}
        drawn = [n for n in several["tasks"] if n in tasks] if several.get("samples") else []
    except BAD_ENTRY:
        raise UserError(
            "params.yaml: suite.tasks: every benchmark needs a `task` and a `key`, and "
            "suite.pass_at_k needs `tasks`"
        ) from None
    pairs = {f"{named[name]} {keys[name]}" for name in tasks}
    pairs |= {f"{named[name]} generates answers" for name in drawn}
    before = loads(path.read_bytes()) if path.exists() else {"known": []}
    if not pairs <= {*before["known"]}:
        from pipelines.suite.task_index import check_file, check_names  # imports much

        check_names(named)
        for name in tasks:
            check_file(name, named[name], keys[name], several=name in drawn)
    inputs = {"known": sorted(pairs), "fetched": fetched({*named.values()})}
    if inputs != before:
        INPUTS.mkdir(parents=True, exist_ok=True)
        write_file(path, dumps(inputs, indent=1) + "\n")


def note_code(known: bool) -> None:
    """Bring the copy of the code up to date. Say which stages run again, and what changed in which
    file.

    ``known``: whether this stage has run here before, so that there may be results.
    """
    changes = mirror(CODE)
    if not known or not changes:
        return
    print(f"code changed; this runs again: {', '.join(stages_reading(changes)) or 'nothing'}")
    for name, change in [*changes.items()][:MAX_FILES_NAMED]:
        print(printable(f"  {name}: {change}"))
    if len(changes) > MAX_FILES_NAMED:
        print(f"  and {len(changes) - MAX_FILES_NAMED} more files")


@command(__doc__)
def main() -> None:
    try:
        params = yaml.safe_load(read_yaml(Path("params.yaml")))
        entries = dict(params["data"])
    except (yaml.YAMLError, ValueError, TypeError, KeyError, FileNotFoundError):
        raise UserError("params.yaml: no entries under data") from None
    for name in entries:
        if not isinstance(name, str) or "/" in name or name in ("", ".", "..", CODE.name):
            raise UserError(
                f"params.yaml: data.{name}: not a valid name of a folder under {INPUTS}"
            )
    keep_other_experiments()
    known = INPUTS.exists()
    note_suite(params.get("suite") or {})
    note_code(known)
    for name, data in entries.items():
        note_input(INPUTS / name / "text.json", text_input, f"data.{name}", data)
        note_input(INPUTS / name / "tokenizer.json", tokenizer_input, f"data.{name}", data)
    for folder in INPUTS.iterdir():
        if folder.is_dir() and folder.name not in {*entries, CODE.name}:
            shutil.rmtree(folder)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.inputs")
