"""Side by side: what is compared runs in turns, in one process; a figure is the median of turns."""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]


class Missing(Exception):
    """What a benchmark needs and this machine or its environment lacks; says how to get it."""


@dataclass(frozen=True)
class Figure:
    """A median with the least and the most of its turns; a ratio may have a target."""

    name: str
    median: float
    low: float
    high: float
    unit: str = "ratio"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:.4g}"
        return "" if self.at_most is None else f"≤ {self.at_most:.4g}"

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the target; None without one."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return None if self.at_most is None else self.median <= self.at_most


@dataclass(frozen=True)
class Picture:
    """A drawing that a benchmark gives among its figures."""

    title: str
    png: bytes


def figure(name: str, values: Sequence[float], unit: str, **target: float) -> Figure:
    return Figure(name, median(values), min(values), max(values), unit, **target)


def ratio(name: str, over: Sequence[float], under: Sequence[float], **target: float) -> Figure:
    """Of each turn's value to that of the other in the same turn."""
    values = [a / b for a, b in zip(over, under, strict=True)]
    return figure(name, values, "ratio", **target)


def now() -> float:
    """Seconds, once a GPU has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()


def in_turns(
    arms: dict[str, Work], turns: int, clock: Callable[[], float] = now
) -> dict[str, list[float]]:
    """Seconds of each arm in each turn; every other turn goes backwards. One turn more, the first,
    warms up and does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(turns + 1):
        for name in arms if turn % 2 else reversed(arms):
            start = clock()
            arms[name]()
            if turn:
                seconds[name].append(clock() - start)
    return seconds


def peak_bytes(work: Work, device: str = "cpu") -> int:
    """Most bytes of tensors that ``work`` held at one time beyond those there before it."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = most = 0
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def machine() -> dict[str, str | int]:
    """What the figures depend on and a reader cannot see."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    has = torch.backends.cpu.get_cpu_capability()
    return {
        "cpu": f"{names[0] if names else platform.processor()}, {has}",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
