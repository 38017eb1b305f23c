"""Reads params.yaml, typed and validated: every mistake is one line that names the key."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines.common.errors import UserError
from pipelines.common.yaml_files import read_yaml
from pipelines.config.checks import check
from pipelines.config.data import dotted, keyed, merge_data, structured
from pipelines.config.schema import Experiment
from pipelines.config.values import too_large

PARAMS = Path("params.yaml")
PARAMS_HINT = "`make repro` and `python -m pipelines.compose` write every setting"
DATA_HINT = "entries of data start from /source and their parts from /part, as in conf/data/"


def load_experiment(path: Path = PARAMS) -> Experiment:
    """Read and validate ``params.yaml``; raises UserError naming the file and the dotted key."""
    return parse(read_params(path), str(path))


def read_params(path: Path = PARAMS) -> DictConfig:
    """Read ``params.yaml`` without validation; raises UserError if it is not a mapping."""
    try:
        node = OmegaConf.load(StringIO(read_yaml(path)))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: `make repro` composes it from conf/") from None
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(node, DictConfig):
        raise UserError(f"{path}: not a mapping")
    return node


def parse(node: DictConfig, source: str) -> Experiment:
    """Validate a composed configuration; raises UserError naming ``source`` and the dotted key."""
    try:
        merged = OmegaConf.merge(structured(Experiment), node)
        OmegaConf.resolve(merged)
        data = {
            name: merge_data(source, f"data.{name}", entry) for name, entry in merged.data.items()
        }
        merged.data = {}
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise UserError(f"{source}: {dotted(missing[0])} is missing")
        experiment = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise UserError(f"{source}: {keyed(error)}") from None
    except OverflowError:  # of float(), to which OmegaConf adds no key
        words = next(too_large(OmegaConf.to_container(node)))
        raise UserError(f"{source}: {words}") from None
    assert isinstance(experiment, Experiment)
    experiment.data = data
    try:
        check(experiment)
    except ValueError as error:
        raise UserError(f"{source}: {' '.join(str(error).split())}") from None
    for key in left_out(asdict(experiment), node):
        hint = DATA_HINT if key.startswith("data.") else PARAMS_HINT
        raise UserError(f"{source}: {key} is missing; {hint}")
    return experiment


def left_out(
    complete: Mapping[str, Any], given: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Dotted keys that the file leaves out: DVC would not see it if their default here changed."""
    for key, value in complete.items():
        if key not in given:
            yield f"{prefix}{key}"
        elif isinstance(value, dict):
            yield from left_out(value, given[key], f"{prefix}{key}.")
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from left_out(entry, given[key][i], f"{prefix}{key}.{i}.")


def check_listed(experiment: Experiment, group: str, name: str) -> None:
    """Raise UserError unless ``name`` is in a group of the experiment."""
    known = getattr(experiment, group)
    if name not in known:
        raise UserError(f"{name!r} is not under {group} in params.yaml: {', '.join(known)}")


def load_stage(group: str, name: str) -> Experiment:
    """The validated experiment; raises UserError unless ``name`` is in its ``group``."""
    experiment = load_experiment()
    check_listed(experiment, group, name)
    return experiment
