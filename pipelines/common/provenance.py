"""Where a result comes from: the code's revision and the device."""

import os
import platform
from subprocess import DEVNULL, CalledProcessError, check_output

import torch

WRITTEN = ("params.yaml", "dvc.lock")  # by composing and running an experiment
STATUS = ("git", "status", "--porcelain", "--untracked-files=no", "--", ":/")


def git_revision() -> str:
    """HEAD, with "+changes" if tracked files differ from it. Files that composing and running an
    experiment write do not count, because every run stores its resolved settings.

    Outside git it is GIT_REVISION, which can be set when a job is submitted, or "unknown".
    """
    try:
        head = check_output(["git", "rev-parse", "HEAD"], stderr=DEVNULL).decode().strip()
        status = (*STATUS, *(f":!/{name}" for name in WRITTEN))
        changes = check_output(status, stderr=DEVNULL)  # names of files in any encoding
    except (CalledProcessError, FileNotFoundError):
        return os.environ.get("GIT_REVISION", "unknown")
    return head + ("+changes" if changes.strip() else "")


def device_name() -> str:
    """The GPU of this process, or its processor and number of threads."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{processor_name()}, {threads} thread{'s' * (threads > 1)}"


def processor_name() -> str:
    """The processor's model, as PyTorch knows it, else its architecture."""
    return str(torch.cpu.get_capabilities().get("cpu_name") or platform.machine())
