"""Times and memory of what is compared, and the table of a measurement.

Arms run in turns in one process, so that a busy machine disturbs all of them alike. What is shown
is the median of the turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import click
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import timer

from pipelines.host.command_line import COUNT

Work = Callable[[], object]

TURNS = click.option("--turns", type=COUNT, default=5, help="Repetitions; the median counts.")
QUICK = click.option("--quick", is_flag=True, help="Tiny shapes: does it run?")
DEVICE = click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu")


@dataclass(frozen=True)
class Measurement:
    """The values of all turns; a ratio may have a target for their median."""

    name: str
    values: Sequence[float]
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None


def ratio(
    name: str, over: Sequence[float], under: Sequence[float], **target: float | None
) -> Measurement:
    """Divide each turn's value by the other arm's in the same turn."""
    values = [a / b for a, b in zip(over, under, strict=True)]
    return Measurement(name, values, "ratio", **target)


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


def print_table(measurements: Sequence[Measurement], quick: bool) -> None:
    """Print a Markdown table; at toy size no target is met or missed."""
    print("| | median (least to most) | unit | target | |\n|---|---|---|---|---|")
    for each in measurements:
        middle = median(each.values)
        value = rounded(middle)
        if min(each.values) < max(each.values):
            value += f" ({rounded(min(each.values))} to {rounded(max(each.values))})"
        target = verdict = ""
        if each.at_least is not None:
            target = f"≥ {rounded(each.at_least)}"
            verdict = "met" if middle >= each.at_least else "missed"
        elif each.at_most is not None:
            target = f"≤ {rounded(each.at_most)}"
            verdict = "met" if middle <= each.at_most else "missed"
        if quick and target:
            verdict = "rehearsed"
        print(f"| {each.name} | {value} | {each.unit} | {target} | {verdict} |", flush=True)


def rounded(value: float) -> str:
    """Format a number with four digits, or from 1000 on as a whole one with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
