"""Model sizes: what each file says of its parameters is so."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ftmodel.costs import parameters
from ftmodel.model.config import ModelConfig
from pipelines.config.schema import Preset

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "conf/model").glob("*.yaml"))
STATED = re.compile(
    r"^# With a vocabulary of (\d+)(?:, its own)?: ([\d ]+) parameters, ([\d ]+) with the latent",
    re.MULTILINE,
)


def read(path):
    preset = OmegaConf.merge(OmegaConf.structured(Preset), OmegaConf.load(path))
    return OmegaConf.to_object(preset)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_has_as_many_parameters_as_it_says(path):
    """Built on the meta device, without and with its latent."""
    (stated,) = STATED.findall(path.read_text())
    vocabulary, plain, latent = (int(number.replace(" ", "")) for number in stated)
    config = read(path).architecture
    baseline = ModelConfig(**{**vars(config), "latent_bits": 0})
    assert parameters(baseline, vocabulary).total == plain
    assert parameters(config, vocabulary).total == latent


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_named_like_its_file_and_makes_both_arms(path):
    """An even depth, so that the latent enters half-way."""
    assert path.read_text().startswith(f"# @package models.{path.stem}\n")
    preset = read(path)
    preset.architecture.validate()
    preset.optim.validate()
    assert preset.architecture.latent_bits > 0 and preset.architecture.n_layers % 2 == 0


def test_sizes_run_from_one_million_to_the_papers():
    sizes = {
        path.stem: int(STATED.findall(path.read_text())[0][1].replace(" ", "")) for path in PRESETS
    }
    for name, about in {
        "text_small": 1e6, "lm_50m": 50e6, "lm_124m": 124e6, "lm_150m": 150e6, "lm_350m": 350e6,
        "paper_1_5b": 1.5e9, "paper_8b": 8e9,
    }.items():  # fmt: skip
        assert sizes[name] == pytest.approx(about, rel=0.03), name
