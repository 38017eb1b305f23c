"""Limits of settings: metadata of a dataclass's field, which one check and the docs read."""

from dataclasses import Field, field, fields
from math import inf
from operator import ge, gt, le, lt
from typing import Any

COMPARISONS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}


def limits(why: str = "", **bounds: float) -> dict[str, Any]:
    """Metadata of a field; ``bounds`` are named as in ``COMPARISONS``, ``why`` ends the message."""
    assert bounds.keys() <= COMPARISONS.keys()
    return {"limits": bounds, "why": why}


def limited(default: Any, why: str = "", **bounds: float) -> Any:
    """A field with a default; None, where its type allows it, has no limits."""
    return field(default=default, metadata=limits(why, **bounds))


def in_words(setting: "Field[Any]") -> str:
    """The limits of a field, as "at least 257 and at most 131,072"; "" if there are none."""
    bounds = setting.metadata.get("limits", {})
    return " and ".join(f"{name.replace('_', ' ')} {bound:,}" for name, bound in bounds.items())


def check_limits(settings: Any) -> None:
    """Raise ValueError, naming field, value and limits, for a value of a dataclass outside them."""
    for setting in fields(settings):
        bounds, value = setting.metadata.get("limits"), getattr(settings, setting.name)
        if bounds is None or value is None:
            continue
        if not abs(value) < inf:
            raise ValueError(f"{setting.name}: {value} is not a finite number")
        if not all(COMPARISONS[name](value, bound) for name, bound in bounds.items()):
            why = setting.metadata["why"]
            raise ValueError(
                f"{setting.name}: {value} must be {in_words(setting)}{why and f'; {why}'}"
            )
