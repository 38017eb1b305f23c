"""Speed and memory, measured side by side.

    python -m perf mapper decoding --quick

Each benchmark runs in a process of its own, so that the memory, threads and compiled code of one do
not touch the next. What each gives is written at once to perf.json and perf.md, in the
place of what that benchmark gave before. One that fails is shown with its traceback, the others go
on, and the exit code is 1; one that lacks something is skipped, and that is no failure.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perf.alone import alone
from perf.table import write_table
from pipelines import cli
from pipelines.common.atomic_files import replace_file
from pipelines.common.errors import UserError
from pipelines.common.strict_json import dumps

PACKAGE = "perf"
NAMES = (
    "mapper",
    "cross_entropy",
    "latent",
    "filtering",
    "training",
    "products",
    "decoding",
    "data_path",
    "pipeline",
    "growth",
    "harness",
    "tokenize",
    "pretrained",
)


def read(path: Path) -> dict[str, Any]:
    """Entries by benchmark, of earlier calls; raises UserError if it is no such file."""
    try:
        entries: dict[str, Any] = json.loads(path.read_bytes())
        write_table(entries)
        return entries
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{path} cannot be read: remove it, or name another folder") from None


def in_a_line(entry: dict[str, Any]) -> str:
    if "failure" in entry:
        return f"failed: {entry['failure'].strip().splitlines()[-1]}"
    if "skipped" in entry:
        return f"skipped: {entry['skipped']}"
    met = [figure["met"] for figure in entry["figures"] if figure["met"] is not None]
    return f"{len(entry['figures'])} figures, {sum(met)} of {len(met)} targets met"


def main(names: Sequence[str], turns: int, quick: bool, out: Path) -> None:
    if unknown := [name for name in names if name not in NAMES]:
        raise UserError(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from None
    path = out / "perf.json"
    entries = read(path)
    failed = False
    for name in names or NAMES:
        entry = alone(f"{PACKAGE}.{name}", turns, quick, out)
        failed |= "failure" in entry
        entries[name] = entry
        with replace_file(path) as file:
            file.write(dumps(entries, indent=1, ensure_ascii=False).encode())
        with replace_file(path.with_suffix(".md")) as file:
            file.write(write_table(entries).encode())
        print(f"{name}: {in_a_line(entry)}; {entry['seconds']:.0f} s", file=sys.stderr, flush=True)
    print(path.with_suffix(".md"))
    sys.exit(failed)


if __name__ == "__main__":
    cli.run("perf")
