"""Compose conf/ into params.yaml, which DVC and every stage read.

    python -m pipelines.compose experiment=quickstart runs.free_k1_8.kappa_bits=0.25

Hydra composes exactly as `dvc exp run -S experiment=…` does (.dvc/config points it at conf/), with
every default of the schema (hydra_plugins/schema.py); the result is validated before it replaces
params.yaml.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines import cli
from pipelines.common.errors import UserError
from pipelines.config.data import keyed
from pipelines.config.load import PARAMS, parse

CONF = Path("conf")
REFUSED = (HydraException, OmegaConfBaseException, yaml.YAMLError)
OVERRIDE = re.compile(r"(?:Error merging override |Could not override ')[+~]*([^=']+)")
RESOLVER = "ValueError raised while resolving interpolation: "  # OmegaConf's own words


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The composed and resolved configuration, as params.yaml has it; raises UserError if it cannot
    be composed.
    """
    try:
        with initialize_config_dir(str(CONF.resolve()), version_base=None):
            config = compose("config", [*overrides])
        OmegaConf.resolve(config)
    except REFUSED as error:
        raise UserError(f"conf/: {one_line(error)}") from None
    plain: Any = OmegaConf.to_container(config, enum_to_str=True)
    return OmegaConf.create(plain)


def one_line(error: Exception) -> str:
    """The error's message; one of a type or of a resolver (hydra_plugins/) starts with its key."""
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        override = OVERRIDE.match(str(error))
        if not override or override[1].split(".")[0] == re.split(r"[.\[]", cause.full_key)[0]:
            return keyed(cause)
        if cause.object_type:  # of an entry of a list, whose number OmegaConf does not say
            return f"{override[1]}: {keyed(cause)}"
        # OmegaConf refuses a mapping for one typed entry, not for the entries, and names no parent
        group = override[1].partition(f".{cause.full_key}")[0]
        return f"{override[1]}: an entry is added as +{group}={{{cause.full_key}: {{…}}}}"
    words = str(error).removeprefix(RESOLVER)
    return "; ".join(line.strip() for line in words.splitlines() if line.strip())


def write_params(config: DictConfig) -> None:
    """Replace params.yaml if it says something else; the configuration has been validated."""
    text = OmegaConf.to_yaml(config)
    if not PARAMS.exists() or PARAMS.read_text() != text:
        PARAMS.write_text(text)
        print(f"{PARAMS}: experiment {config.name}, {len(config.runs)} runs")


def compose_valid(overrides: Sequence[str]) -> DictConfig:
    """The composed configuration; raises UserError if it is not valid."""
    config = compose_config(overrides)
    parse(config, "conf/" + (f" with {' '.join(overrides)}" if overrides else ""))
    return config


def main(overrides: Sequence[str]) -> None:
    write_params(compose_valid(overrides))


if __name__ == "__main__":
    cli.run("compose")
