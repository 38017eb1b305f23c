"""Limits on every setting: numbers are finite and exact, texts are UTF-8."""

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any

from ftmodel.model.limits import check_limits

MAX_EXACT_INTEGER = 1 << 53  # as a double, which JSON, charts and MLflow have


def too_large(value: Any, key: str = "") -> Iterator[str]:
    """Say what is wrong with each integer in nested mappings and lists that no float can hold."""
    if isinstance(value, dict | list):
        for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from too_large(entry, f"{key}.{name}" if key else str(name))
    elif isinstance(value, int) and abs(value) > sys.float_info.max:
        yield f"{key}: '{shortened(str(value))}' is too large for a number"


def check_values(key: str, value: Any) -> None:
    """Raise ValueError, starting with the dotted key, for a value that no setting may have, or that
    a dataclass within ``value`` refuses by a field's limits or its method ``validate``.
    """
    typed = is_dataclass(value)
    if typed:
        entries = [(field.name, getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, dict):
        entries = [*value.items()]
    elif isinstance(value, list):
        entries = [(str(i), entry) for i, entry in enumerate(value)]
    else:
        check_value(key, value)
        return
    for name, entry in entries:
        below = f"{key}.{name}" if key else name
        if isinstance(entry, dict | list) and not typed:
            # OmegaConf lets these through as entries of typed lists and mappings
            raise ValueError(f"{below}: {shortened(str(entry))} is not a single value")
        check_values(below, entry)
    if typed:
        check_part(key, value)


def check_part(key: str, part: Any) -> None:
    try:
        check_limits(part)
        if hasattr(part, "validate"):
            part.validate()
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None


def check_value(key: str, value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{key}: {value} is not a finite number")
    if isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        raise ValueError(f"{key}: {shortened(str(value))} is outside −2^53 … 2^53")
    if isinstance(value, str) and not isinstance(value, Enum):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{key}: not text: it cannot be written as UTF-8") from None
        if "\0" in value:
            raise ValueError(f"{key}: has a NUL character")


def shortened(text: str, length: int = 40) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"
