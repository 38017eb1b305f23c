"""Where a result comes from: the code's revision and the device."""

import os
import platform
from pathlib import Path
from subprocess import DEVNULL, CalledProcessError, check_output

import torch

PROCESSOR = Path("/proc/cpuinfo")
WRITTEN = ("params.yaml", "dvc.lock")  # by whoever composes and runs an experiment
STATUS = ("git", "status", "--porcelain", "--untracked-files=no", "--", ":/")


def git_revision() -> str:
    """HEAD, with "+changes" if tracked files differ from it, but for those that composing and
    running an experiment write: what is run is kept with each run.

    Outside git what GIT_REVISION says, which whoever submits a job may set, or "unknown".
    """
    try:
        head = check_output(["git", "rev-parse", "HEAD"], text=True, stderr=DEVNULL).strip()
        status = (*STATUS, *(f":!/{name}" for name in WRITTEN))
        changes = check_output(status, text=True, stderr=DEVNULL)
    except (CalledProcessError, FileNotFoundError):
        return os.environ.get("GIT_REVISION", "unknown")
    return head + ("+changes" if changes.strip() else "")


def device_name() -> str:
    """What this process computes on: its GPU, or its processor and how many threads it uses."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{processor_name()}, {threads} thread{'s' * (threads > 1)}"


def processor_name() -> str:
    """The processor's model, as Linux knows it, else its architecture."""
    try:
        entries = [line.partition(":") for line in PROCESSOR.read_text().splitlines()]
    except OSError:
        return platform.machine()
    found = [value.strip() for key, _, value in entries if key.strip() == "model name"]
    return found[0] if found else platform.machine()
