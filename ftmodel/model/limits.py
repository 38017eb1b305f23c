"""Metadata of settings, which are fields of dataclasses: their limits, which one check and the docs
read, and whether a baseline reads the setting.
"""

from dataclasses import MISSING, Field, field, fields, is_dataclass
from math import inf
from operator import ge, gt, le, lt
from typing import Any

LATENT_ONLY = {"latent_only": True}  # marks a setting that only a Free Transformer reads
COMPARISONS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}


def limits(why: str = "", **bounds: float) -> dict[str, Any]:
    """Metadata of a field; ``bounds`` are named as in ``COMPARISONS``, ``why`` ends the message."""
    assert bounds.keys() <= COMPARISONS.keys()
    return {"limits": bounds, "why": why}


def limited(default: Any, why: str = "", latent_only: bool = False, **bounds: float) -> Any:
    """A field with a default; None, where its type allows it, has no limits."""
    return field(
        default=default, metadata=limits(why, **bounds) | (LATENT_ONLY if latent_only else {})
    )


def latent_only(settings: type, prefix: str) -> dict[str, Any]:
    """The settings of a dataclass that a baseline does not read, with their defaults, by dotted
    key. They are marked with ``LATENT_ONLY``, here or in a dataclass that a field has as its type.
    """
    found: dict[str, Any] = {}
    for setting in fields(settings):
        key, default = f"{prefix}.{setting.name}", setting.default
        if setting.metadata.get("latent_only"):
            made = setting.default_factory
            found[key] = default if made is MISSING else made()
        elif isinstance(setting.type, type) and is_dataclass(setting.type):
            found |= latent_only(setting.type, key)
    return found


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
