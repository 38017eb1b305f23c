"""Measurements, each in a process of its own, and the record of them: a JSON file and a page."""

import json
import os
import platform
import signal
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from ctypes import CDLL
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import distributions
from math import inf
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from traceback import format_exception
from typing import Any

import torch

from pipelines.commands import doctor
from pipelines.host.errors import UserError
from pipelines.host.files import dumps, write_file
from pipelines.host.machine import git_revision, whole_cores
from pipelines.host.pytorch import processor_name

Entry = dict[str, Any]
PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 30  # from the end of its time until a part is killed that does not stop itself
# what is measured, or measured beside
PACKAGES = ("torch", "numpy", "lightning", "transformers", "tokenizers", "lm_eval")
REHEARSAL = "This is a rehearsal at toy size on a CPU. Its figures mean nothing."
TABLE_HEAD = "| | median (least to most) | unit | target | |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Part:
    """A module with `measure`, its arguments, and how many minutes it may run."""

    module: str
    target: str = ""
    minutes: float = inf
    given: dict[str, Any] = field(default_factory=dict)
    turns: int = 5
    goes_on: bool = False  # called again, it does what is left to do


def machine() -> dict[str, str]:
    """Describe what measurements depend on and a reader cannot see."""
    gpu = "none"
    if torch.cuda.is_available():
        driver = doctor.output_of(
            "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
        )
        driver = (driver or "unknown").splitlines()[0]
        gpu = f"{torch.cuda.get_device_name()}, driver {driver}, CUDA {torch.version.cuda}"
    found = {each.name.replace("_", "-"): each.version for each in distributions()}
    packages = [f"{p} {found[n]}" for p in PACKAGES if (n := p.replace("_", "-")) in found]
    return {
        "cpu": f"{processor_name()}, {torch.backends.cpu.get_cpu_capability()}",
        "cores": f"{whole_cores()} cores, {torch.get_num_threads()} threads",
        "gpu": f"GPU: {gpu}",
        "software": ", ".join([f"Python {platform.python_version()}", *packages]),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def in_this_process(part: Part, turns: int, quick: bool, seconds: float) -> Entry:
    if sys.platform == "linux":  # left behind, it would disturb the next
        CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    end_after(seconds)
    try:
        module = import_module(part.module)
        before = machine()
        found = module.measure(turns, quick, **part.given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    figures = [asdict(each) | {"target": each.target, "met": each.met} for each in found]
    return {"compares": module.__doc__.splitlines()[0], "machine": before, "figures": figures}


def end_after(seconds: float) -> None:
    """Raise TimeoutError in this process after ``seconds``; kill it if it goes on."""

    def over(*_: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(GRACE_SECONDS)
        raise TimeoutError(f"not done after {seconds:.0f} s")

    if seconds < inf:
        signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def measure_part(part: Part, turns: int, quick: bool, seconds: float = inf) -> Entry:
    """Run one part in a process of its own, for at most ``seconds``; returns its entry."""
    date = datetime.now(UTC).isoformat(timespec="minutes")
    entry: Entry = {"date": date, "commit": git_revision(), "turns": turns, "quick": quick}
    start = perf_counter()
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            entry |= pool.submit(in_this_process, part, turns, quick, seconds).result()
    except Exception as error:
        entry["failure"] = "".join(format_exception(error))
    return entry | {"seconds": perf_counter() - start, "load_after": f"{os.getloadavg()[0]:.1f}"}


def is_measured(entry: Entry | None) -> bool:
    """Whether an entry has measurements, made with the code that is here now."""
    return entry is not None and "figures" in entry and entry["commit"] == git_revision()


def time_for(part: Part, todo: Iterable[Part], left: float) -> float:
    """Seconds that a part may take of what is ``left``: parts of one module get equal shares."""
    return min(60 * part.minutes, left / sum(part.module == each.module for each in todo))


def record(
    parts: Mapping[str, Part],
    names: Iterable[str],
    path: Path,
    title: str,
    quick: bool,
    turns: int | None = None,
    minutes: float = inf,
) -> None:
    """Measure these parts. What each gives is written at once to <path>.json and <path>.md, in
    place of what it gave before. Ends the process, with exit code 1 if a part failed.
    """
    begun, failed = perf_counter(), False
    if unknown := [name for name in names if name not in parts]:
        raise UserError(f"no measurement {unknown[0]!r}; there are {', '.join(parts)}")
    entries = read_entries(path, parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path.parent}: {error.strerror}") from None
    todo = list(names)
    while todo:
        name, part = todo[0], parts[todo[0]]
        left = 60 * minutes - (perf_counter() - begun)
        seconds = time_for(part, [parts[each] for each in todo], left)
        if seconds > 0:
            entry = measure_part(part, turns or part.turns, quick, seconds)
            line = f"{in_a_line(entry)}; {entry['seconds']:.0f} s"
            failed |= "failure" in entry
            if "figures" not in entry and is_measured(entries.get(name)):
                entries[name]["later"] = in_a_line(entry)
            else:
                entries[name] = entry
        else:
            line, failed = f"not begun: the {minutes:g} minutes are over", True
        content = dumps(entries, indent=1, ensure_ascii=False)
        for suffix, text in (("json", content), ("md", page(entries, parts, title))):
            write_file(path.with_name(f"{path.name}.{suffix}"), text)
        print(f"{name}: {line}", file=sys.stderr, flush=True)
        todo = todo[1:]
    print(path.with_name(f"{path.name}.md"))
    sys.exit(failed)


def read_entries(path: Path, parts: Mapping[str, Part]) -> dict[str, Entry]:
    """Read what earlier calls measured; raises UserError if the file cannot be read."""
    file = path.with_name(f"{path.name}.json")
    try:
        entries: dict[str, Entry] = json.loads(file.read_bytes())
        page(entries, parts, "")
        return entries
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{file} cannot be read: remove it, or name another --out") from None


def in_a_line(entry: Entry) -> str:
    if "failure" in entry:
        return f"failed: {entry['failure'].strip().splitlines()[-1]}"
    met = [figure["met"] for figure in entry["figures"] if figure["met"] is not None]
    return f"{len(entry['figures'])} figures, {sum(met)} of {len(met)} targets met"


def page(entries: Mapping[str, Entry], parts: Mapping[str, Part], title: str) -> str:
    """Write a section for each part that was tried or has a target; machine where it changes."""
    blocks, known = [f"# {title}"], None
    if any(entry["quick"] for entry in entries.values()):
        blocks.append(f"**{REHEARSAL}**")
    for name, part in parts.items():
        entry = entries.get(name)
        if entry is None:
            if part.target:
                blocks += [f"## {name}", f"{part.target}: not measured: not tried"]
            continue
        blocks.append(f"## {name}")
        if part.target:
            blocks.append(f"Target: {part.target}")
        if "figures" not in entry:
            blocks += [f"not measured: {in_a_line(entry)}", said(entry)]
            if "failure" in entry:
                blocks.append(f"```\n{entry['failure'].strip()}\n```")
            continue
        here = ". ".join(entry["machine"][key] for key in ("cpu", "cores", "gpu", "software"))
        blocks += [entry["compares"], *[f"{here}."] * (here != known), said(entry)]
        known = here
        if "later" in entry:
            blocks.append(f"measured; when tried again: {entry['later']}")
        blocks.append(
            "\n".join(
                [TABLE_HEAD, *(figure_row(each, entry["quick"]) for each in entry["figures"])]
            )
        )
    return "\n\n".join(blocks) + "\n"


def said(entry: Entry) -> str:
    """Say when, with which code, in what time, and on how busy a machine."""
    words = f"{entry['date']}, commit {entry['commit']}, {entry['turns']} turns"
    load = f"load {entry['machine']['load']} before, " if "machine" in entry else "load "
    return f"{words}, {entry['seconds']:.0f} s; {load}{entry['load_after']} after"


def figure_row(figure: Mapping[str, Any], quick: bool) -> str:
    low, middle, high = (rounded(figure[key]) for key in ("low", "median", "high"))
    spread = "" if low == high else f" ({low} to {high})"
    verdict = {None: "", True: "met", False: "missed"}[figure["met"]]
    if quick and verdict:
        verdict = "rehearsed"
    cells = (figure["name"], middle + spread, figure["unit"], figure["target"], verdict)
    return f"| {' | '.join(cells)} |"


def rounded(value: float) -> str:
    """Format a number with four digits, or from 1000 on as a whole one with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
