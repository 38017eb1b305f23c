"""List what this machine lacks, and what that costs.

    ftlab doctor

Each thing is tried with the function that a stage uses. Nothing is changed. It takes a few seconds,
or half a minute where nothing has been compiled before. `ok`: it works. `–`: it does not, and this
is what that costs. `!!`: `make repro` cannot work without it; the exit code is then 1.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

from pipelines.host.command_line import command
from pipelines.host.console import aligned
from pipelines.host.dvc import git_refusal, in_git
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT, check_project_folder, check_writable, has_flock

INSTALLED_EXTRAS = ("lab", "cluster", "suite", "export")  # that `make` installs
OK, COSTS, STOPS = "ok", "–", "!!"
GB = 1e9
MIN_DISK_GB, RECOMMENDED_DISK_GB = 1.0, 10.0
WAIT_SECONDS = 10.0  # that a program may take to answer


@dataclass
class Finding:
    what: str
    value: str
    state: str = OK
    cost: str = ""  # if it is missing


def packages() -> Finding:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", constraints, re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (project["optional-dependencies"][name] for name in INSTALLED_EXTRAS)
    names = re.findall(r"^[\w-]+", "\n".join(chain(project["dependencies"], *extras)), re.M)
    tested = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    python = f"Python {platform.python_version()}"
    missing, others = [], []
    if python.rpartition(".")[0].removeprefix("Python ") not in tested:
        others.append(f"{python} for {tested[0]} to {tested[-1]}")
    for name in names:
        try:
            here = version(name).partition("+")[0]
            if here != pinned.get(name, here):
                others.append(f"{name} {here} for {pinned[name]}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding("packages", f"no {', '.join(missing)}", STOPS, "`make` installs them")
    if others:
        cost = "nothing was tested with these; `make` installs those of constraints.txt"
        return Finding("packages", ", ".join(others), COSTS, cost)
    return Finding("packages", f"{python}, {len(names)} packages as in constraints.txt")


def folder() -> Finding:
    here = Path.cwd()
    try:
        check_project_folder()
        check_writable(here)
    except UserError as error:
        return Finding("folder", str(error), STOPS, "every stage writes here")
    free = shutil.disk_usage(here).free / GB
    value = f"{here}, {free:.1f} GB free"
    if free < MIN_DISK_GB:
        return Finding("folder", value, STOPS, f"at least {MIN_DISK_GB:g} GB are needed")
    if not has_flock(here):
        cost = "`make repro` notices none on another machine here: docs/cluster.md"
        return Finding("folder", f"{value}; its storage has no flock", COSTS, cost)
    if free < RECOMMENDED_DISK_GB:
        cost = "enough for `quickstart`; if it fills up, a stage ends and continues later"
        return Finding("folder", value, COSTS, cost)
    return Finding("folder", value)


def git() -> Finding:
    installed = output_of("git", "--version")
    if refusal := git_refusal(Path.cwd()):
        return Finding("git", refusal, STOPS, "DVC would fail after a stage")
    if not installed or not in_git(Path.cwd()):
        value = "this folder is in no repository" if installed else "not installed"
        cost = "no results name the code's commit (unless GIT_REVISION does), no `dvc exp`"
        return Finding("git", value, COSTS, cost)
    lock = output_of("git", "rev-parse", "--git-path", "index.lock") or ""
    if Path(lock).is_file():
        value = f"{lock} is there: another git command is at work, or was killed"
        return Finding("git", value, COSTS, "git and `dvc exp` wait or fail; `make repro` works")
    return Finding("git", installed.removeprefix("git version "))


def machine() -> Finding:
    from pipelines.host.machine import allowed_memory, whole_cores
    from pipelines.host.pytorch import idle_threads
    from pipelines.parallel.slots import PROCESS

    (threads, reason), memory = idle_threads(), allowed_memory()
    value = f"{reason}, {memory / GB:.1f} GB of memory"
    if memory < PROCESS:
        cost = f"a stage takes {PROCESS / GB:g} GB beside its model; with less it may be killed"
        return Finding("machine", value, COSTS, cost)
    if threads < whole_cores():
        return Finding("machine", value, COSTS, f"training takes {threads} now, so it is slower")
    return Finding("machine", value)


def gpu() -> Finding:
    import torch

    driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    driver = driver and driver.splitlines()[0]
    if torch.cuda.is_available():
        value = f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}, driver {driver}"
        try:
            torch.ones(1, device="cuda").sum().item()
        except RuntimeError as error:  # of an architecture that this PyTorch is not built for, say
            value = f"{value}: {str(error).splitlines()[0]}"
            return Finding("GPU", value, STOPS, "`export CUDA_VISIBLE_DEVICES=` works on the CPU")
        return Finding("GPU", value)
    value = "none"
    if driver:
        needed = torch.version.cuda or "no CUDA"
        value = f"driver {driver} does not support this PyTorch ({needed})"
    cost = "`quickstart` takes eight to twelve minutes on a CPU; 100 M parameters need a GPU"
    return Finding("GPU", value, COSTS, cost)


def compiler() -> Finding:
    from pipelines.host.compiler import compiler_failure

    if reason := compiler_failure():
        cost = "nothing is compiled: training on a CPU takes up to 1.3 times as long"
        return Finding("compiler", reason, COSTS, cost)
    name = os.environ.get("CXX", "g++")
    return Finding("compiler", (output_of(name, "--version") or name).splitlines()[0])


def ray() -> Finding:
    from pipelines.cluster.preflight import ray_failure

    if reason := ray_failure():
        return Finding("Ray", reason, COSTS, "no compute.workers above 1, no sweeps")
    from pipelines.cluster.connection import check_address

    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        check_address(address)
    except UserError as error:
        cost = "every stage would run there: unset it to work on this machine"
        return Finding("Ray", str(error), STOPS, cost)
    return Finding("Ray", f"{version('ray')}, {address}")


def hub() -> Finding:
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    # another process asks, because an unknown name takes long
    ask = f"import requests; requests.head({ENDPOINT!r}, timeout={WAIT_SECONDS})"
    if not HF_HUB_OFFLINE and output_of(sys.executable, "-c", ask) is not None:
        return Finding("hub", f"{ENDPOINT} answers")
    value = "not asked: HF_HUB_OFFLINE" if HF_HUB_OFFLINE else f"{ENDPOINT} is not in reach"
    return Finding("hub", value, COSTS, "only data entries from the hub and `ftlab fetch` need it")


def output_of(*command: str) -> str | None:
    """What a program prints; None if it fails or does not end in time."""
    try:
        process = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=WAIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


CHECKS = (packages, folder, git, machine, gpu, compiler, ray, hub)


def all_findings() -> Iterator[Finding]:
    for check in CHECKS:
        try:
            yield check()
        except (ImportError, FileNotFoundError) as error:  # `packages` reports it
            yield Finding(check.__name__, f"not looked at: {error}", COSTS, "see packages")


@command(__doc__)
def main() -> None:
    rows = list(all_findings())
    for line, row in zip(aligned([[r.state, r.what, r.value] for r in rows]), rows, strict=True):
        print(line)
        if row.state != OK:
            print(f"      {row.cost}")
    if stops := [row.what for row in rows if row.state == STOPS]:
        print(f"`make repro` cannot work here yet: {', '.join(stops)}", file=sys.stderr)
        raise SystemExit(1)
