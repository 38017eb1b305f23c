"""One benchmark in a process of its own, and all that is to be said of it."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from ctypes import CDLL
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL
from time import perf_counter
from traceback import format_exception
from typing import Any

from perf.measure import Figure, Missing, Picture, machine
from pipelines.common.atomic_files import ROOT, replace_file

PR_SET_PDEATHSIG = 1
GRACE = 30  # seconds from the end of its time to its end, for a benchmark that does not stop itself
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


def end_with_parent() -> None:
    """Have this process killed when its parent dies: left behind, it would disturb the next."""
    if sys.platform == "linux":
        CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)


def in_this_process(
    module: str, turns: int, quick: bool, limit: float | None, given: dict[str, Any]
) -> tuple[str, dict[str, str | int], list[Figure | Picture]]:
    """What a benchmark compares, the machine before it began, and what it found."""
    end_with_parent()
    if limit is not None:
        end_after(limit)
    benchmark = import_module(module)
    before = machine()
    try:
        return benchmark.__doc__ or "", before, benchmark.measure(turns, quick, **given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def end_after(limit: float) -> None:
    """Raise TimeoutError in this process after ``limit`` seconds; it is killed if it goes on."""

    def over(*_: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(GRACE)
        raise TimeoutError(f"not done after {limit:.0f} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit)


def alone(
    module: str,
    turns: int,
    quick: bool,
    folder: Path,
    limit: float | None = None,
    stem: str | None = None,
    **given: Any,
) -> dict[str, Any]:
    """The entry of one benchmark, run in a process of its own, for ``limit`` seconds at most;
    pictures lie in the folder as <stem>_1.png and so on, ``given`` is handed to its ``measure``.
    """
    entry: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="minutes")}
    entry |= {"commit": commit(), "versions": versions(), "turns": turns, "quick": quick}
    start = perf_counter()
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            doc, before, found = pool.submit(
                in_this_process, module, turns, quick, limit, given
            ).result()
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
            name = f"{stem or module.rpartition('.')[2]}_{len(entry['pictures']) + 1}.png"
            with replace_file(folder / name) as file:
                file.write(each.png)
            entry["pictures"][name] = each.title
    return entry | {"seconds": perf_counter() - start, "load_after": os.getloadavg()[0]}


def commit() -> str | None:
    """The checkout's, and whether files differ from it; None outside of git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, encoding="utf-8"
        ).stdout.strip()

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
