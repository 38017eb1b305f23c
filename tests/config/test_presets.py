"""Model sizes: what each file says of its parameters is so."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ftmodel.costs.training import parameters
from pipelines.config.checks import check_values
from pipelines.config.schema import Preset

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "conf/model").glob("*.yaml")
STATED = re.compile(
    r"^# With a vocabulary of (\d+)(?:, its own)?: ([\d ]+) parameters, ([\d ]+) with the latent",
    re.MULTILINE,
)
ABOUT = {
    "text_small": 1e6, "lm_50m": 50e6, "lm_124m": 124e6, "lm_150m": 150e6, "lm_350m": 350e6,
    "paper_1_5b": 1.51e9, "paper_8b": 8.05e9,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({path.stem for path in FILES} | {*ABOUT}))
def test_a_preset_is_what_it_says_and_makes_both_arms(name):
    """Named like its file, with as many parameters without and with its latent as it says, and of
    an even depth, so that the latent enters half-way. Sizes run from a million to the paper's.
    """
    path = ROOT / f"conf/model/{name}.yaml"
    assert path.read_text().startswith(f"# @package models.{name}\n")
    merged = OmegaConf.merge(OmegaConf.structured(Preset), OmegaConf.load(path))
    preset = OmegaConf.to_object(merged)
    check_values("preset", preset)
    config = preset.architecture
    assert config.latent_bits > 0 and config.n_layers % 2 == 0
    (stated,) = STATED.findall(path.read_text())
    vocabulary, plain, latent = (int(number.replace(" ", "")) for number in stated)
    assert parameters(replace(config, latent_bits=0), vocabulary).total == plain
    assert parameters(config, vocabulary).total == latent
    assert plain == pytest.approx(ABOUT.get(name, plain), rel=0.03)
