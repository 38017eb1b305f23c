"""What this process runs on: the cores and memory that it may use, which are fewer in a container
than on the machine; its device; and the revision of the code.
"""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from subprocess import DEVNULL, CalledProcessError, check_output

import psutil
import torch

from pipelines.host.console import say
from pipelines.host.errors import UserError

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
SAMPLE_SECONDS = 0.3  # over which the load of the cores is measured
MAX_IGNORED_CORES = 0.25  # that others use
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
NEVER_BYTES = 1 << 30
WRITTEN = ("params.yaml", "dvc.lock")  # by composing and running an experiment
STATUS = ("git", "status", "--porcelain", "--untracked-files=no", "--", ":/")


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


def idle_threads() -> tuple[int, str]:
    """One thread of PyTorch for each idle core, and the reason in words.

    On cores that other processes use, more threads are slower, not faster: they wait for one
    another at every operation. Two threads on two busy cores were 20 times slower than one.
    """
    cores, own = allowed_cores(), os.sched_getaffinity(0)
    shares = psutil.cpu_percent(SAMPLE_SECONDS, percpu=True)  # used by others: this process waits
    busy = sum(shares[core] for core in own if core < len(shares)) / 100
    idle = min(cores, len(own) - busy)
    threads = max(1, min(int(idle + MAX_IGNORED_CORES), torch.get_num_threads()))
    return threads, f"of {cores:g} cores others use {busy:.1f}"


def set_threads(setting: int | None) -> None:
    """Set the number of threads; None: OMP_NUM_THREADS, or one for each idle core, printed."""
    if setting is not None:
        torch.set_num_threads(setting)
    elif "OMP_NUM_THREADS" not in os.environ and not torch.cuda.is_available():
        threads, reason = idle_threads()
        torch.set_num_threads(threads)
        say(f"threads: {threads} ({reason}; compute.threads decides)")


@contextmanager
def full_memory(what: str, settings: str) -> Iterator[None]:
    """Raise a UserError that says to lower ``settings`` if a GPU's memory is full."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise UserError(f"{what}: the GPU's memory is full; lower {settings} ({reason})") from None


def keep_freed_memory() -> None:
    """Keep freed memory for the next tensors in this process; does nothing without glibc.

    By default glibc returns large blocks to the system at once, which hands them out again zeroed,
    page by page: 1600 page faults of some 2 µs in a 0.1 s training step of `target_small`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(MMAP_THRESHOLD, NEVER_BYTES)
        mallopt(TRIM_THRESHOLD, NEVER_BYTES)


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


def device_name() -> str:
    """The GPU of this process, or its processor and number of threads."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{processor_name()}, {threads} {'thread' if threads == 1 else 'threads'}"


def processor_name() -> str:
    """The processor's model, as PyTorch knows it, else its architecture."""
    return str(torch.cpu.get_capabilities().get("cpu_name") or platform.machine())
