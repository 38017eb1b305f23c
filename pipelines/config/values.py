"""What any setting may be: a number finite and exact, a text UTF-8, a boolean true or false.

Hydra converts values before anyone can check them, so what a boolean takes is decided where
OmegaConf converts: importing this module changes that.
"""

from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any

from omegaconf import BooleanNode, FloatNode
from omegaconf.errors import ValidationError

LARGEST = 1 << 53  # integers up to it are exact in JSON, in charts and in MLflow, as doubles


def true_or_false(self: BooleanNode, value: Any) -> bool:
    if not isinstance(value, bool):  # OmegaConf takes any number but 0, and "on", for true
        raise ValidationError("Value '$VALUE' of type '$VALUE_TYPE' is neither true nor false")
    return value


def number(self: FloatNode, value: Any) -> float:
    try:
        return as_omegaconf_does(self, value)
    except OverflowError:
        raise ValidationError(f"'{shortened(str(value))}' is too large for a number") from None


as_omegaconf_does = FloatNode._validate_and_convert_impl
BooleanNode._validate_and_convert_impl = true_or_false  # type: ignore[method-assign]
FloatNode._validate_and_convert_impl = number  # type: ignore[method-assign]


def check_values(key: str, value: Any) -> None:
    """Raise ValueError, starting with the dotted key, for a value that no setting may have."""
    if is_dataclass(value):
        entries = [(field.name, getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, dict):
        entries = [*value.items()]
    elif isinstance(value, list):
        entries = [(str(i), entry) for i, entry in enumerate(value)]
    else:
        check_value(key, value)
        return
    for name, entry in entries:
        if isinstance(entry, dict | list) and not is_dataclass(value):
            # OmegaConf lets these through as entries of typed lists and mappings
            raise ValueError(f"{key}.{name}: {shortened(str(entry))} is not a single value")
        check_values(f"{key}.{name}" if key else name, entry)


def check_value(key: str, value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{key}: {value} is not a finite number")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"{key}: {shortened(str(value))} is outside −2^53 … 2^53")
    if isinstance(value, str) and not isinstance(value, Enum):
        check_text(key, value)


def check_text(key: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key}: not text: it cannot be written as UTF-8") from None
    if "\0" in text:
        raise ValueError(f"{key}: has a NUL character")


def shortened(text: str, length: int = 40) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"
