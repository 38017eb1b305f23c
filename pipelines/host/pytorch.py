"""What PyTorch has of this machine: threads, memory and a device."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch

from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.machine import allowed_cores

SAMPLE_SECONDS = 0.3  # over which the load of the cores is measured
MAX_IGNORED_CORES = 0.25  # that others use
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
NEVER_BYTES = 1 << 30


def idle_threads() -> tuple[int, str]:
    """One thread of PyTorch for each idle core, and the reason in words.

    On cores that other processes use, more threads are slower, not faster: they wait for one
    another at every operation. Two threads on two busy cores were 20 times slower than one.
    """
    cores = allowed_cores()
    own = os.sched_getaffinity(0)
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


def device_name() -> str:
    """The GPU of this process, or its processor and number of threads."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{processor_name()}, {threads} {'thread' if threads == 1 else 'threads'}"


def processor_name() -> str:
    """The processor's model, as PyTorch knows it, else its architecture."""
    return str(torch.cpu.get_capabilities().get("cpu_name") or platform.machine())
