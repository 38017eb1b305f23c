"""Cores and memory that this process may use: the machine's, or less in a container."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def allowed_cores() -> float:
    """The cores of this process, or less where a control group limits its time on them."""
    pairs = [
        *limits("cpu", "cpu.max"),  # version 2: microseconds of CPU per period, and the period
        *limits("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"),  # version 1; −1 is no limit
    ]
    quotas = [quota / period for quota, period in pairs if quota > 0]
    return min([float(len(os.sched_getaffinity(0))), *quotas])


def whole_cores() -> int:
    """How many processes or threads are worth starting; at least one."""
    return max(1, int(allowed_cores()))


def allowed_memory() -> float:
    """Bytes of memory that this process may use."""
    files = [*limits("memory", "memory.max"), *limits("memory", "memory.limit_in_bytes")]
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(min([whole, *(limit for (limit,) in files)]))


def limits(controller: str, *names: str) -> Iterator[list[int]]:
    """The numbers in these files, in each control group of this process that has a limit."""
    for folder in groups(controller):
        with suppress(OSError, ValueError):  # no such file, or "max"
            texts = [(folder / name).read_text(encoding="utf-8") for name in names]
            yield [int(word) for text in texts for word in text.split()]


def groups(controller: str) -> Iterator[Path]:
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
