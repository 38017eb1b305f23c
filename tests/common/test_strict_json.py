"""JSON of ours has no NaN and no infinity."""

import json
from math import inf, nan

from pipelines.common.strict_json import dumps


def test_what_is_no_number_is_null():
    value = {"a": [1, inf, -inf], "b": (nan, 2.5), "x": "NaN", "y": True, "z": None}
    written = {"a": [1, None, None], "b": [None, 2.5], "x": "NaN", "y": True, "z": None}
    assert json.loads(dumps(value)) == written
