"""Defaults: they stand in the schema alone, and all of them arrive in params.yaml."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from ftmodel.model.config import ModelConfig
from ftmodel.model.latent_design import LatentDesign
from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config import data, init_from, schema, suite
from pipelines.config.load import load_experiment, parse

ROOT = Path(__file__).parents[2]
ALL_DATA = ",".join(sorted(p.stem for p in (ROOT / "conf/data").glob("*.yaml")))
EVERYTHING = ["experiment=kappa_text", f"data=[{ALL_DATA}]"]  # arms, both kinds of data and parts
BY_DVC = """
import sys
from pathlib import Path
from dvc.utils.hydra import compose_and_dump

root = sys.argv[1]
compose_and_dump("params.yaml", f"{root}/conf", None, "config", root, sys.argv[2:])
"""


@pytest.fixture(autouse=True)
def _in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def settings(value, key=""):
    """(type, dotted key) of every field in a tree of dataclasses and mappings."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield type(value), f"{key}{field.name}"
            yield from settings(getattr(value, field.name), f"{key}{field.name}.")
    elif isinstance(value, dict | list):
        for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from settings(entry, f"{key}{name}.")


def test_every_field_of_the_schema_is_in_the_composed_params():
    composed = compose_config(EVERYTHING)
    present = list(settings(parse(composed, "conf")))
    types = {
        cls
        for module in (schema, data, suite, init_from)
        for cls in vars(module).values()
        if dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__
    }
    assert {cls for cls, _ in present} == types | {ModelConfig, LatentDesign}
    plain = OmegaConf.to_container(composed)
    for _, key in present:
        node = plain
        for name in key.split("."):
            if isinstance(node, list):
                node = node[int(name)]
            else:
                assert name in node, key
                node = node[name]


def leaves(node, key=""):
    if not isinstance(node, dict):
        return {key.removesuffix("."): node}
    return {k: v for name, entry in node.items() for k, v in leaves(entry, f"{key}{name}.").items()}


def repeated(path, package):
    """What a file of conf/ says that the schema says too."""
    written = yaml.safe_load(path.read_text()) or {}
    written.pop("defaults", None)
    defaults = OmegaConf.to_container(OmegaConf.structured(schema.Experiment), enum_to_str=True)
    for name in package:
        defaults = defaults[name]
    known = leaves(defaults)
    return [key for key, value in leaves(written).items() if key in known and known[key] == value]


def test_conf_repeats_no_default_of_the_schema(tmp_path):
    """An entry of `data`, `models` or `runs` may pin what it rests on; the sections may not."""
    assert repeated(ROOT / "conf/config.yaml", []) == []
    for path in (ROOT / "conf/suite").glob("*.yaml"):
        assert repeated(path, ["suite"]) == [], path
    (tmp_path / "config.yaml").write_text("compute: {workers: 1, accumulate: 2}\nevaluation: {}\n")
    assert repeated(tmp_path / "config.yaml", []) == ["compute.workers"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=quickstart"],
        [*EVERYTHING, "seeds=[3,5]", "arms.free_k1.kappa_bits=0.75"],
        ["experiment=smoke", "suite=none", "models.text_small.optim.weight_decay=0.3",
         "+source@data.more=coin", "data.more={train_sequences: 9, validation_sequences: 9}"],
    ],
    ids=["plain", "arms", "overrides"],
)  # fmt: skip
def test_dvc_composes_the_same_params(overrides, tmp_path):
    """As `dvc exp run -S` does it: by Hydra, and without pipelines.compose."""
    subprocess.run(
        [sys.executable, "-c", BY_DVC, str(ROOT), *overrides],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert (tmp_path / "params.yaml").read_text() == OmegaConf.to_yaml(compose_config(overrides))


@pytest.mark.parametrize(
    "key",
    [
        "seeds",
        "compute.max_failures",
        "models.text_small.optim.weight_decay",
        "models.text_small.architecture.norm_eps",
        "runs.baseline.budgets",
        "suite.samples",
        "suite.tasks.words.shots",
        "data.stdlib.deduplicate",
        "data.stdlib.parts.stdlib.weight",
        "question",
        "expectation.1.because",
    ],
)
def test_a_setting_left_out_of_params_is_named_and_not_filled_in(key, tmp_path):
    params = OmegaConf.load("params.yaml")
    *parents, name = key.split(".")
    del (OmegaConf.select(params, ".".join(parents)) if parents else params)[name]
    OmegaConf.save(params, tmp_path / "params.yaml")
    with pytest.raises(UserError) as caught:
        load_experiment(tmp_path / "params.yaml")
    assert f"params.yaml: {key} is missing; " in str(caught.value)
