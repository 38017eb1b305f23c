"""Speed and memory, measured side by side.    python -m benchmarks [names…] [--quick] [--turns N]

Each benchmark runs in a process of its own, so that the memory, threads and compiled code of one do
not touch the next. What each gives is written at once to benchmarks.json and benchmarks.md, in the
place of what that benchmark gave before. One that fails is shown with its traceback, the others go
on, and the exit code is 1; one that lacks something is skipped, and that is no failure.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from traceback import format_exception
from typing import Any

from benchmarks.measure import Figure, Missing, Picture, machine
from benchmarks.table import write_table
from pipelines import errors
from pipelines.errors import UserError
from pipelines.files import ROOT, replace_file

PACKAGE = "benchmarks"
NAMES = (
    "mapper",
    "training",
    "decoding",
    "data_path",
    "pipeline",
    "growth",
    "harness",
    "tokenize",
)
PACKAGES = (  # what is measured, or measured beside
    "torch",
    "numpy",
    "lightning",
    "transformers",
    "tokenizers",
    "lm_eval",
    "dvc",
    "litgpt",
    "free-transformer",
    "x-transformers",
)


def in_this_process(
    module: str, turns: int, quick: bool
) -> tuple[str, dict[str, str | int], list[Figure | Picture]]:
    """What a benchmark compares, the machine before it began, and what it found."""
    benchmark = import_module(module)
    before = machine()
    return benchmark.__doc__ or "", before, benchmark.measure(turns, quick)


def alone(module: str, turns: int, quick: bool, folder: Path) -> dict[str, Any]:
    """The entry of one benchmark, run in a process of its own; pictures lie in the folder."""
    entry: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="minutes")}
    entry |= {"commit": commit(), "versions": versions(), "turns": turns, "quick": quick}
    start = perf_counter()
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            doc, before, found = pool.submit(in_this_process, module, turns, quick).result()
    except Missing as lacking:
        entry["skipped"] = str(lacking)
    except Exception as error:
        entry["failure"] = "".join(format_exception(error))
    else:
        entry |= {"compares": doc.strip(), "machine": before, "figures": [], "pictures": {}}
        for each in found:
            if isinstance(each, Figure):
                entry["figures"].append(asdict(each) | {"target": each.target, "met": each.met})
                continue
            name = f"{module.rpartition('.')[2]}_{len(entry['pictures']) + 1}.png"
            with replace_file(folder / name) as file:
                file.write(each.png)
            entry["pictures"][name] = each.title
    return entry | {"seconds": perf_counter() - start, "load_after": os.getloadavg()[0]}


def commit() -> str | None:
    """The checkout's, and whether files differ from it; None outside of git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = bool(git("status", "--porcelain"))
        return git("rev-parse", "--short", "HEAD") + " with changes" * changed
    except (OSError, subprocess.CalledProcessError):
        return None


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def read(path: Path) -> dict[str, Any]:
    """Entries by benchmark, of earlier calls; raises UserError if it is no such file."""
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise UserError(f"{path} cannot be read: remove it, or name another folder") from None


def in_a_line(entry: dict[str, Any]) -> str:
    if "failure" in entry:
        return f"failed: {entry['failure'].strip().splitlines()[-1]}"
    if "skipped" in entry:
        return f"skipped: {entry['skipped']}"
    met = [figure["met"] for figure in entry["figures"] if figure["met"] is not None]
    return f"{len(entry['figures'])} figures, {sum(met)} of {len(met)} targets met"


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=(__doc__ or "").partition("    ")[0]
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all unless named")
    parser.add_argument("--turns", type=int, default=5, help="of which a figure is the median")
    parser.add_argument("--quick", action="store_true", help="tiny shapes: does it run?")
    parser.add_argument("--out", type=Path, default=ROOT / "bench", metavar="FOLDER")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in NAMES]:
        raise UserError(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    if options.turns < 1:
        raise UserError("--turns: at least 1")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "benchmarks.json"
    entries = read(path)
    failed = False
    for name in options.names or NAMES:
        entry = alone(f"{PACKAGE}.{name}", options.turns, options.quick, options.out)
        failed |= "failure" in entry
        entries[name] = entry
        with replace_file(path) as file:
            file.write(json.dumps(entries, indent=1, ensure_ascii=False).encode())
        with replace_file(path.with_suffix(".md")) as file:
            file.write(write_table(entries).encode())
        print(f"{name}: {in_a_line(entry)}; {entry['seconds']:.0f} s", file=sys.stderr, flush=True)
    print(path.with_suffix(".md"))
    sys.exit(failed)


if __name__ == "__main__":
    errors.run(main)
