"""A horizontal axis of a setting's values, linear or logarithmic."""

from dataclasses import dataclass
from math import log2
from typing import Any

WIDE = 8  # a setting whose values differ by this factor has a logarithmic axis
TICKS = 12  # labels on an axis, at most


@dataclass(frozen=True)
class Scale:
    """Where values stand on the horizontal axis: what is no number, or has no logarithm, apart on
    the left.
    """

    places: dict[Any, float]
    apart: set[Any]
    log: bool

    def ticks(self) -> list[Any]:
        """Values to label: those that keep their distance from the one before."""
        ordered = sorted(self.places, key=lambda value: self.places[value])
        width = self.places[ordered[-1]] - self.places[ordered[0]]
        kept = ordered[:1]
        for value in ordered[1:]:
            if self.places[value] - self.places[kept[-1]] >= width / TICKS:
                kept.append(value)
        return kept


def scale(values: list[Any], log: bool = False) -> Scale:
    """The axis for these values; ``log`` asks for a logarithmic one in any case."""
    different = list(dict.fromkeys(values))
    numbers = sorted(v for v in different if isinstance(v, int | float) and not isinstance(v, bool))
    positive = [v for v in numbers if v > 0]
    log = bool(positive) and (log or (numbers == positive and positive[-1] / positive[0] >= WIDE))
    placed = positive if log else numbers
    places = {v: log2(v) if log else float(v) for v in placed}
    left = min(places.values(), default=0.0)
    step = max((max(places.values(), default=0.0) - left) / 8, 1.0 if log or not places else 0.0)
    apart = [v for v in numbers if v not in places] + [v for v in different if v not in numbers]
    for i, value in enumerate(apart, start=1):
        places[value] = left - i * (step or 1.0)
    return Scale(places, set(apart) - set(numbers), log)
