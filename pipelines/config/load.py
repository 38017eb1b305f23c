"""Read params.yaml, typed and validated: every mistake is one line that names the key."""

from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines.common.errors import UserError
from pipelines.config.checks import check
from pipelines.config.data import merge_data
from pipelines.config.schema import Experiment

PARAMS = Path("params.yaml")


def load_experiment(path: Path = PARAMS) -> Experiment:
    """Read and validate ``params.yaml``; raises UserError naming the file and the dotted key."""
    try:
        node = OmegaConf.load(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: `make repro` composes it from conf/") from None
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    if not isinstance(node, DictConfig):
        raise UserError(f"{path}: not a mapping")
    return parse(node, str(path))


def parse(node: DictConfig, source: str) -> Experiment:
    """Validate a composed configuration; raises UserError naming ``source`` and the dotted key."""
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Experiment), node)
        OmegaConf.resolve(merged)
        data = {
            name: merge_data(source, f"data.{name}", entry) for name, entry in merged.data.items()
        }
        merged.data = {}
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise UserError(f"{source}: {missing[0]} is missing")
        experiment = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise UserError(f"{source}: {key}{str(error).splitlines()[0]}") from None
    assert isinstance(experiment, Experiment)
    experiment.data = data
    try:
        check(experiment)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    return experiment


def load_stage(group: str, name: str) -> Experiment:
    """The validated experiment; raises UserError unless ``name`` is in its ``group``."""
    experiment = load_experiment()
    known = getattr(experiment, group)
    if name not in known:
        raise UserError(f"{name!r} is not under {group} in params.yaml: {', '.join(known)}")
    return experiment
