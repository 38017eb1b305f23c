"""Runs measurements one after another, each in a process of its own, and puts them on one page.

<page>.md           all parts in order
<page>/<part>.md    what a part printed, and when, where and with which code
"""

import os
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from math import inf
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic

import torch

from pipelines.commands import doctor
from pipelines.host.errors import UserError, not_one_of
from pipelines.host.files import ROOT, check_writable, write_file
from pipelines.host.machine import git_revision, whole_cores
from pipelines.host.pytorch import processor_name

PACKAGES = ("torch", "numpy", "lightning", "transformers")
FAILED = "failed: "  # how the file of a part that failed begins
MAX_LINES_OF_ERROR = 40


@dataclass(frozen=True)
class Part:
    """A module of Python with its arguments, how long it may run, and what it is to reach."""

    arguments: Sequence[str]
    minutes: float = inf
    target: str = ""


def run_parts(
    parts: Mapping[str, Part],
    names: Collection[str],
    page: Path,
    title: str,
    minutes: float = inf,
) -> None:
    """Run these parts and write the page after each. Ends the process, with exit code 1 if a part
    failed or ``minutes`` did not suffice for all. Raises UserError for an unknown name.
    """
    if unknown := [name for name in names if name not in parts]:
        raise UserError(f"measurement {not_one_of(unknown[0], parts)}")
    begun, all_succeeded = monotonic(), True
    check_writable(page)
    for name in names:
        left = 60 * minutes - (monotonic() - begun)
        if left > 0:
            print(f"{name} …", file=sys.stderr, flush=True)
            text = run_part(parts[name], min(60 * parts[name].minutes, left))
            file = page / f"{name}.md"
            # what was measured is kept if a later try fails
            if not text.startswith(FAILED) or not is_measured(file):
                write_file(file, text)
        else:
            text = f"{FAILED}not begun, as the {minutes:g} minutes are over"
        if text.startswith(FAILED):
            print(f"{name}: {text.strip()}", file=sys.stderr, flush=True)
            all_succeeded = False
        write_file(page.with_name(f"{page.name}.md"), whole_page(parts, page, title))
    print(page.with_name(f"{page.name}.md"))
    sys.exit(not all_succeeded)


def run_part(part: Part, seconds: float) -> str:
    """Run a part for at most ``seconds``; returns what it printed, or its error, with a line on
    when, where and with which code.
    """
    started, before, load = datetime.now(UTC), monotonic(), os.getloadavg()[0]
    failure = ""
    with (
        TemporaryFile("w+", encoding="utf-8") as output,
        TemporaryFile("w+", encoding="utf-8") as errors,
    ):
        command = [sys.executable, "-m", *part.arguments]
        limit = None if seconds == inf else seconds
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=errors, timeout=limit)
            if done.returncode:
                failure = f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            failure = f"not done after {seconds:.0f} s"
        output.seek(0)
        errors.seek(0)
        printed, error = output.read().strip(), errors.read().strip()
    about = (
        f"{started:%Y-%m-%d %H:%M} UTC, commit {git_revision()}, {monotonic() - before:.0f} s; "
        f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after. {machine()}."
    )
    if not failure:
        return f"{about}\n\n{printed}\n"
    last_lines = "\n".join(f"{printed}\n{error}".splitlines()[-MAX_LINES_OF_ERROR:])
    return f"{FAILED}{failure}. {about}\n\n```\n{last_lines}\n```\n"


def machine() -> str:
    """What measurements depend on and a reader cannot see."""
    gpu = "no GPU"
    if torch.cuda.is_available():
        query = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        driver = (doctor.output_of(*query) or "unknown").splitlines()[0]
        gpu = f"{torch.cuda.get_device_name()}, driver {driver}, CUDA {torch.version.cuda}"
    packages = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    cpu = f"{processor_name()} ({torch.backends.cpu.get_cpu_capability()}), {whole_cores()} cores"
    return f"{cpu}, {gpu}, Python {platform.python_version()}, {packages}"


def is_measured(file: Path) -> bool:
    """Whether a part has succeeded with the code that is here now."""
    text = file.read_text(encoding="utf-8") if file.exists() else FAILED
    return not text.startswith(FAILED) and f"commit {git_revision()}," in text


def whole_page(parts: Mapping[str, Part], folder: Path, title: str) -> str:
    """The page: a section for each part that was tried or has a target."""
    blocks = [f"# {title}"]
    for name, part in parts.items():
        file = folder / f"{name}.md"
        if part.target:
            blocks.append(f"## {name}\n\nTarget: {part.target}")
        elif file.exists():
            blocks.append(f"## {name}")
        if file.exists():
            blocks.append(file.read_text(encoding="utf-8").strip())
        elif part.target:
            blocks.append("not measured: not tried")
    return "\n\n".join(blocks) + "\n"
