"""Compose conf/ into params.yaml, which DVC and every stage read.

    python -m pipelines.compose experiment=quickstart runs.free_k1_8.kappa_bits=0.25

Hydra composes exactly as `dvc exp run -S experiment=…` does (.dvc/config points it at conf/);
the result is validated before it replaces params.yaml.
"""

import sys
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines.common import errors
from pipelines.common.errors import UserError
from pipelines.config.load import PARAMS, parse

CONF = Path("conf")
REFUSED = (HydraException, OmegaConfBaseException, yaml.YAMLError)
RESOLVER = "ValueError raised while resolving interpolation: "  # OmegaConf's own words


def compose_config(overrides: list[str]) -> DictConfig:
    """The composed and resolved configuration; raises UserError if it cannot be composed."""
    try:
        with initialize_config_dir(str(CONF.resolve()), version_base=None):
            config = compose("config", overrides)
        OmegaConf.resolve(config)
    except REFUSED as error:
        raise UserError(f"conf/: {one_line(error)}") from None
    return config


def one_line(error: Exception) -> str:
    """The error's words; those of a resolver (hydra_plugins/) start with the dotted key."""
    words = str(error).removeprefix(RESOLVER)
    return "; ".join(line.strip() for line in words.splitlines() if line.strip())


def write_params(config: DictConfig) -> None:
    """Replace params.yaml if it says something else; the configuration has been validated."""
    text = OmegaConf.to_yaml(config)
    if not PARAMS.exists() or PARAMS.read_text() != text:
        PARAMS.write_text(text)
        print(f"{PARAMS}: experiment {config.name}, {len(config.runs)} runs")


def main() -> None:
    overrides = sys.argv[1:]
    config = compose_config(overrides)
    source = "conf/" + (f" with {' '.join(overrides)}" if overrides else "")
    parse(config.copy(), source)
    write_params(config)


if __name__ == "__main__":
    errors.run(main)
