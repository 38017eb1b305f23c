"""What this process runs on: the cores and memory that it may use, which are fewer in a container
than on the machine, and the revision of the code. It imports nothing slow.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from subprocess import DEVNULL, CalledProcessError, check_output

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
WRITTEN = ("params.yaml", "dvc.lock")  # by composing and running an experiment
STATUS = ("git", "status", "--porcelain", "--untracked-files=no", "--", ":/")


def allowed_cores() -> float:
    """The cores of this process, or less where a control group limits its time on them."""
    pairs = [
        *cgroup_limits(
            "cpu", "cpu.max"
        ),  # version 2: microseconds of CPU per period, and the period
        *cgroup_limits("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"),  # version 1; −1 is no limit
    ]
    quotas = [quota / period for quota, period in pairs if quota > 0]
    return min([float(len(os.sched_getaffinity(0))), *quotas])


def whole_cores() -> int:
    """How many processes or threads are worth starting; at least one."""
    return max(1, int(allowed_cores()))


def allowed_memory() -> float:
    """Bytes of memory that this process may use."""
    files = [
        *cgroup_limits("memory", "memory.max"),
        *cgroup_limits("memory", "memory.limit_in_bytes"),
    ]
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(min([whole, *(limit for (limit,) in files)]))


def cgroup_limits(controller: str, *names: str) -> Iterator[list[int]]:
    """The numbers in these files, in each control group of this process that has a limit."""
    for folder in cgroup_folders(controller):
        with suppress(OSError, ValueError):  # no such file, or "max"
            texts = [(folder / name).read_text(encoding="utf-8") for name in names]
            yield [int(word) for text in texts for word in text.split()]


def cgroup_folders(controller: str) -> Iterator[Path]:
    """The folders of this process's control groups, outermost first, of versions 1 and 2. In a
    container only the first of each may exist, with the container's own limits.
    """
    lines = ["::/", f":{controller}:/"]
    with suppress(OSError):
        lines += MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            folder = CGROUPS / controller if controllers else CGROUPS
            yield folder
            for part in PurePosixPath(path).parts[1:]:
                folder /= part
                yield folder


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
    return f"{head}+changes" if changes.strip() else head
