"""Defaults: they stand in the schema alone, and all of them arrive in params.yaml."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from ftmodel.config import LatentDesign, ModelConfig
from pipelines.config import data, init_from, schema
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from tests.support.settings import refusal

ROOT = Path(__file__).parents[2]
ALL_DATA = ",".join(sorted(p.stem for p in (ROOT / "conf/data").glob("*.yaml")))
EVERYTHING = ["experiment=kappa_text", f"data=[{ALL_DATA}]"]  # arms, both kinds of data and parts
BY_DVC = """
import json, sys
from dvc.utils.hydra import compose_and_dump

root, every = sys.argv[1:]
for name, overrides in json.loads(every).items():
    compose_and_dump(f"{name}.yaml", f"{root}/conf", None, "config", root, overrides)
"""


def types_in(value):
    """Of all dataclasses in a tree of dataclasses, mappings and lists."""
    if dataclasses.is_dataclass(value):
        return {type(value)}.union(*map(types_in, vars(value).values()))
    entries = value.values() if isinstance(value, dict) else value
    return set().union(*map(types_in, entries)) if isinstance(value, dict | list) else set()


def test_settings_of_every_type_are_in_the_composed_params():
    """All of them: ``parse`` refuses params that leave one out."""
    types = {
        cls
        for module in (schema, data, init_from)
        for cls in vars(module).values()
        if dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__
    }
    present = types_in(parse(compose_config(EVERYTHING), "conf"))
    assert present == types | {ModelConfig, LatentDesign}


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


OVERRIDES = {
    "arms": [*EVERYTHING, "seeds=[3,5]", "arms.free_k1.kappa_bits=0.75"],
    "other": ["experiment=smoke", "suite=none", "models.text_small.optim.weight_decay=0.3",
              "+source@data.more=coin", "data.more={train_sequences: 9, validation_sequences: 9}"],
}  # fmt: skip


@pytest.fixture(scope="module")
def composed_by_dvc(tmp_path_factory):
    """The text of params.yaml for each of OVERRIDES, as `dvc exp run -S` writes it: by Hydra, and
    without pipelines.config.compose.
    """
    folder = tmp_path_factory.mktemp("dvc")
    subprocess.run(
        [sys.executable, "-c", BY_DVC, str(ROOT), json.dumps(OVERRIDES)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return {name: (folder / f"{name}.yaml").read_text() for name in OVERRIDES}


@pytest.mark.parametrize("case", OVERRIDES)
def test_dvc_composes_the_same_params(composed_by_dvc, case):
    assert composed_by_dvc[case] == OmegaConf.to_yaml(compose_config(OVERRIDES[case]))


@pytest.mark.parametrize(
    "key",
    ["seeds", "runs.baseline.budgets", "suite.pass_at_k.k", "data.stdlib.deduplicate",
     "data.stdlib.parts.stdlib.weight", "expectation.1.because"],
)  # fmt: skip
def test_a_setting_left_out_of_params_is_named_and_not_filled_in(key):
    params = OmegaConf.create(OmegaConf.to_yaml(compose_config([])))
    *parents, name = key.split(".")
    del (OmegaConf.select(params, ".".join(parents)) if parents else params)[name]
    assert f"params.yaml: {key} is missing; " in refusal(parse, params, "params.yaml")
