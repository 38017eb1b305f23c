"""List what this machine lacks, and what that costs.

    ftlab doctor

Each thing is tried with the function that a stage uses. Nothing is changed. It takes a few seconds,
or half a minute where nothing has been compiled before. `ok`: it works. `–`: it does not, and this
is what that costs. `!!`: `make repro` cannot work without it; the exit code is then 1.
"""

import getpass
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

from pipelines.host.command_line import command
from pipelines.host.console import aligned
from pipelines.host.dvc import git_refusal, in_git
from pipelines.host.errors import UserError, unnamed_user
from pipelines.host.files import ROOT, check_writable, special_path

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


def python() -> Finding:
    value = f"{platform.python_version()}, {sys.executable}"
    if not platform.python_version().startswith("3.11."):
        return Finding("Python", value, COSTS, "constraints.txt was resolved on Python 3.11")
    return Finding("Python", value)


def packages() -> Finding:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", constraints, re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (project["optional-dependencies"][name] for name in INSTALLED_EXTRAS)
    names = re.findall(r"^[\w-]+", "\n".join(chain(project["dependencies"], *extras)), re.M)
    missing, others = [], []
    for name in names:
        try:
            here = version(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        if here.partition("+")[0] != pinned.get(name, here):
            others.append(f"{name} {here} for {pinned[name]}")
    if missing:
        return Finding("packages", f"no {', '.join(missing)}", STOPS, "`make` installs them")
    if others:
        cost = "nothing was tested with these; `make` installs those of constraints.txt"
        return Finding("packages", ", ".join(others), COSTS, cost)
    return Finding("packages", f"{len(names)} of them, as in constraints.txt")


def disk() -> Finding:
    folder = Path.cwd()
    free = shutil.disk_usage(folder).free / GB
    value = f"{free:.1f} GB free"
    try:
        check_writable(folder)
    except UserError as error:
        return Finding("disk", str(error), STOPS, "every stage writes here")
    if free < MIN_DISK_GB:
        return Finding("disk", value, STOPS, f"at least {MIN_DISK_GB:g} GB are needed")
    if free < RECOMMENDED_DISK_GB:
        cost = "enough for `quickstart`; if it fills up, a stage ends and continues later"
        return Finding("disk", value, COSTS, cost)
    return Finding("disk", value)


def git() -> Finding:
    cost = "no results name the code's commit (unless GIT_REVISION does), no `dvc exp`"
    if not shutil.which("git"):
        return Finding("git", "not installed", COSTS, cost)
    if refusal := git_refusal(Path.cwd()):
        return Finding("git", refusal, STOPS, "DVC would fail after a stage")
    if not in_git(Path.cwd()):
        return Finding("git", "this folder is in no repository", COSTS, cost)
    return Finding("git", (output_of("git", "--version") or "").removeprefix("git version "))


def user() -> Finding:
    name = getpass.getuser()
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        if name == unnamed_user():
            cost = "`dvc` typed by hand fails without a name: `export USER=lab` before it"
            return Finding("user", f"number {os.getuid()} has no name", COSTS, cost)
    return Finding("user", name)


def path() -> Finding:
    folder = str(Path.cwd())
    if not Path("dvc.yaml").exists():
        return Finding("path", folder, STOPS, "not the project's folder: it has no dvc.yaml")
    if special_path([folder]):
        cost = "has a space or the like: see Ray and compiler; everything else works there"
        return Finding("path", folder, COSTS, cost)
    return Finding("path", folder)


def cores() -> Finding:
    from pipelines.host.machine import whole_cores
    from pipelines.host.pytorch import idle_threads

    threads, reason = idle_threads()
    cost = f"training takes {threads} now, so it is slower"
    return Finding("cores", reason, COSTS if threads < whole_cores() else OK, cost)


def memory() -> Finding:
    from pipelines.host.machine import allowed_memory
    from pipelines.parallel.slots import PROCESS

    here = allowed_memory()
    cost = f"a stage takes {PROCESS / GB:g} GB beside its model; with less it may be killed"
    return Finding("memory", f"{here / GB:.1f} GB", COSTS if here < PROCESS else OK, cost)


def gpu() -> Finding:
    import torch

    driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if torch.cuda.is_available():
        try:
            torch.ones(1, device="cuda").sum().item()
        except RuntimeError as error:  # of an architecture that this PyTorch is not built for, say
            value = f"{torch.cuda.get_device_name()}: {str(error).splitlines()[0]}"
            return Finding("GPU", value, STOPS, "`export CUDA_VISIBLE_DEVICES=` works on the CPU")
        count, name = torch.cuda.device_count(), torch.cuda.get_device_name()
        return Finding("GPU", f"{count} × {name}, driver {(driver or '?').splitlines()[0]}")
    cost = (
        "`quickstart` takes eight to twelve minutes on a CPU; models of 100 M parameters need one"
    )
    if driver:
        needed = torch.version.cuda or "no CUDA"
        value = f"driver {driver.splitlines()[0]} does not support this PyTorch ({needed})"
        return Finding("GPU", value, COSTS, cost)
    return Finding("GPU", "none", COSTS, cost)


def sandbox() -> Finding:
    from pipelines.suite.sandbox.run import unavailable

    if reason := unavailable():
        cost = "benchmarks that run programs of a model are skipped"
        return Finding("Landlock", reason, COSTS, cost)
    return Finding("Landlock", "programs of a model can be confined")


def ray() -> Finding:
    from pipelines.cluster.preflight import ray_failure

    cost = "no compute.workers above 1, no sweeps"
    if reason := ray_failure():
        return Finding("Ray", reason, COSTS, cost)
    address = os.environ.get("RAY_ADDRESS") or "local"
    from pipelines.cluster.connection import check_address

    try:
        check_address(address)
    except UserError as error:
        cost = "every stage would run there: unset it to work on this machine"
        return Finding("Ray", str(error), STOPS, cost)
    return Finding("Ray", f"{version('ray')}, {address}")


def compiler() -> Finding:
    from pipelines.host.compiler import compiler_failure

    if reason := compiler_failure():
        cost = (
            "nothing is compiled: training on a CPU takes up to 1.3 times as long (60 to 47 "
            "thousand tokens/s for free_k1 of four_thresholds, LOG.md, 2026-11-21)"
        )
        return Finding("compiler", reason, COSTS, cost)
    name = os.environ.get("CXX", "g++")
    return Finding("compiler", (output_of(name, "--version") or name).splitlines()[0])


def hub() -> Finding:
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    cost = "only data entries from the hub and `ftlab fetch` need it"
    if HF_HUB_OFFLINE:
        return Finding("hub", "not asked: HF_HUB_OFFLINE", COSTS, cost)
    if answers(ENDPOINT):
        return Finding("hub", f"{ENDPOINT} answers")
    return Finding("hub", f"{ENDPOINT} is not in reach", COSTS, cost)


def output_of(*command: str) -> str | None:
    """What a program prints; None if it fails or does not end in time."""
    try:
        process = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=WAIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def answers(url: str) -> bool:
    """Whether a server answers. Another process asks, because an unknown name takes long."""
    ask = f"import requests; requests.head({url!r}, timeout={WAIT_SECONDS})"
    return output_of(sys.executable, "-c", ask) is not None


CHECKS: tuple[Callable[[], Finding], ...] = (
    *(python, packages, path, user, git, disk, cores, memory, gpu, compiler, ray, sandbox, hub),
)


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
