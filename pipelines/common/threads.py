"""Chooses how many threads PyTorch uses on a CPU.

On cores that other processes use, more threads are slower, not faster: they wait for one another at
every operation. Two threads on two busy cores were 20 times slower than one.
"""

import os

import psutil
import torch

from pipelines.common.console import say
from pipelines.common.machine import allowed_cores

SAMPLE_SECONDS = 0.3  # over which the load of the cores is measured
MAX_IGNORED_CORES = 0.25  # that others use


def idle_threads() -> tuple[int, str]:
    """One thread for each idle core, and the reason in words."""
    cores, own = allowed_cores(), os.sched_getaffinity(0)
    shares = psutil.cpu_percent(SAMPLE_SECONDS, percpu=True)  # used by others: this process waits
    busy = sum(shares[core] for core in own if core < len(shares)) / 100
    idle = min(cores, len(os.sched_getaffinity(0)) - busy)
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
