"""Side by side: what is compared runs in turns, in one process; a figure is the median of turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import timer

Work = Callable[[], object]


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


def figure(name: str, values: Sequence[float], unit: str = "ratio", **target: float) -> Figure:
    return Figure(name, median(values), min(values), max(values), unit, **target)


def ratio(name: str, over: Sequence[float], under: Sequence[float], **target: float) -> Figure:
    """Divide each turn's value by the other arm's in the same turn."""
    return figure(name, [a / b for a, b in zip(over, under, strict=True)], **target)


def in_turns(arms: dict[str, Work], turns: int) -> dict[str, list[float]]:
    """Seconds of each arm in each turn; every other turn goes backwards. An extra first turn warms
    up and does not count. torch's ``timer`` waits until a GPU has done its work.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(turns + 1):
        for name in arms if turn % 2 else reversed(arms):
            start = timer()
            arms[name]()
            if turn:
                seconds[name].append(timer() - start)
    return seconds


def peak_bytes(work: Work, device: str = "cpu") -> int:
    """Most bytes of tensors that ``work`` held at one time, beyond the bytes there before it."""
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
