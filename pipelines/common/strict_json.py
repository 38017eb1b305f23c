"""Standard JSON, without NaN and infinity, which many readers refuse."""

import json
from math import isfinite
from typing import Any


def without_nan(value: Any) -> Any:
    """Plain data with null for each number that is not finite."""
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def dumps(value: Any, **options: Any) -> str:
    return json.dumps(without_nan(value), allow_nan=False, **options)
