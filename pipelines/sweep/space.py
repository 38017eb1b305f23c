"""A space of settings, in YAML by Ray Tune's own names: `lr: {loguniform: [1.0e-4, 1.0e-2]}`.

Tune draws from it before the sweep, so that every trial is validated before the first one starts.
"""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
from ray import tune
from ray.tune.search import sample
from ray.tune.search.variant_generator import generate_variants

from ftmodel.model.config import ModelConfig
from pipelines.config.schema import Optim, Run

KEY_GROUPS = {"run": Run, "architecture": ModelConfig, "optim": Optim}
FUNCTIONS = {  # whose arguments YAML can write
    name: getattr(tune, name)
    for name in ["grid_search", *vars(sample)]
    if name in tune.__all__ and name != "sample_from"
}

Settings = dict[str, Any]  # by dotted key


def read_space(space: dict[str, Any], prefix: str = "") -> Settings:
    """What Tune makes of each setting, nested or dotted; raises a ValueError that names the key."""
    found: Settings = {}
    for name, entry in space.items():
        key = f"{prefix}{name}"
        if not prefix and key.partition(".")[0] not in KEY_GROUPS:
            raise ValueError(f"space.{key}: a key starts with {', '.join(KEY_GROUPS)}")
        if not isinstance(entry, dict) or not entry:
            raise ValueError(f"space.{key}: not a mapping such as {{grid_search: [1, 2]}}")
        nested = all(isinstance(value, dict) for value in entry.values())
        values = read_space(entry, f"{key}.") if nested else {key: read_function(key, entry)}
        if twice := found.keys() & values:
            raise ValueError(f"space.{min(twice)}: given twice, nested and with dots")
        found |= values
    return found


def read_function(key: str, entry: dict[str, Any]) -> Any:
    if len(entry) > 1:
        raise ValueError(f"space.{key}: one function, not {' and '.join(entry)}")
    ((name, arguments),) = entry.items()
    if name not in FUNCTIONS:
        raise ValueError(f"space.{key}.{name}: not one of {', '.join(FUNCTIONS)} of ray.tune")
    if not isinstance(arguments, list) or not arguments:
        raise ValueError(f"space.{key}.{name}: not a list of arguments")
    function = FUNCTIONS[name]
    takes_list = len(signature(function).parameters) == 1  # choice and grid_search
    try:
        values = function(arguments) if takes_list else function(*arguments)
        if isinstance(values, sample.Domain):
            values.sample(random_state=0)
    except Exception as error:  # as Tune or numpy raises it at wrong arguments
        raise ValueError(f"space.{key}.{name}: {arguments}: {error}") from None
    return values


def sweep_points(space: Settings, samples: int, seed: int) -> Iterator[Settings]:
    """Every point of the grid with every draw; draws vary slowest. More samples add to them."""
    if samples > 1 and not any(isinstance(values, sample.Domain) for values in space.values()):
        raise ValueError(f"samples: {samples}, but space has nothing that is drawn at random")
    rng = np.random.default_rng(seed)
    for _ in range(samples):
        for _, point in generate_variants(space, constant_grid_search=True, random_state=rng):
            yield point
