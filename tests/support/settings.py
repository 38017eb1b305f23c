"""The experiment smoke with changed settings: composed once, and changed as Hydra changes it; and
changes of a params.yaml.
"""

from collections.abc import Callable, Iterator
from contextlib import chdir
from copy import deepcopy
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, get_args, get_type_hints

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from pipelines.config.compose import compose_config
from pipelines.config.derived import trainings
from pipelines.config.load import parse
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError
from tests import ROOT


@cache
def composed() -> DictConfig:
    with chdir(ROOT):
        return compose_config(["experiment=smoke"])


def changed(*overrides: str) -> DictConfig:
    config = deepcopy(composed())
    for override in OverridesParser.create().parse_overrides([*overrides]):
        OmegaConf.update(config, override.key_or_group, override.value(), force_add=True)
    config.trainings = trainings(OmegaConf.to_container(config.runs), config.name)
    return config


def smoke(*overrides: str) -> Experiment:
    return parse(changed(*overrides), "conf")


def change(key: str, value: object) -> Callable[[], object]:
    """Change a setting of params.yaml in the current folder; returns what undoes it."""
    params: Any = OmegaConf.load("params.yaml")
    before = OmegaConf.select(params, key)
    OmegaConf.update(params, key, value, merge=False)
    OmegaConf.save(params, "params.yaml")
    return partial(change, key, before)


@cache  # no test changes an experiment
def composed_by_hydra(*overrides: str) -> Experiment:
    with chdir(ROOT):
        return parse(compose_config([*overrides]), "conf")


def refusal(read, *arguments: object) -> str:
    """The one line that a mistake ends in."""
    with pytest.raises(UserError) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def another(value: Any, hint: Any = None) -> Any:
    """A value that is different, of the same type; for None one that the type ``hint`` allows."""
    kind = next((kind for kind in get_args(hint) if isinstance(kind, type)), int)
    match value:
        case None:
            return next(iter(kind)) if issubclass(kind, Enum) else kind(7)
        case bool():
            return not value
        case Enum():
            return next(member for member in type(value) if member is not value)
        case str():
            return f"{value}_"
        case list():
            return [*value, 7]
        case dict():
            return value | {"another": 7}
    return value + 1


def each_changed(settings: Any) -> Iterator[tuple[str, Any]]:
    """For every single setting, its dotted key and a copy of ``settings`` that differs in it."""
    mapping = isinstance(settings, dict)
    hints = {} if mapping else get_type_hints(type(settings))
    for name, value in (settings if mapping else vars(settings)).items():
        nested = is_dataclass(value) or (isinstance(value, dict) and value)
        changes = each_changed(value) if nested else [("", another(value, hints.get(name)))]
        for below, changed in changes:
            other = deepcopy(settings)
            (other if mapping else vars(other))[name] = changed
            yield f"{name}.{below}".removesuffix("."), other
