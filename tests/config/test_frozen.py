"""What a stage's parameters were when it started, and what tells them from others."""

import os
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from pipelines.common.errors import UserError
from pipelines.compose import compose_config, write_params
from pipelines.config.frozen import freeze
from tests.support.mutants import rejects

ROOT = Path(__file__).parents[2]
RUN = "text_free_k1_2"
# by stage: the name of its entry, and a change of each group of settings that DVC records for it
STAGES = {
    "data": ("stdlib", ["data.stdlib.seed"]),
    "tokenize": ("stdlib", ["data.stdlib.vocab_size"]),
    "train": (
        RUN,
        [
            "name",
            "compute.precision",
            f"runs.{RUN}.seed",
            f"runs.{RUN}.kappa_bits",
            f"runs.{RUN}.tokens",
            "models.text_small.optim.lr",
        ],
    ),
    "evaluate": (RUN, ["name", "evaluation.seed", "evaluation.particles"]),
    "suite": (RUN, ["name", "suite.limit", "suite.tasks.words.shots"]),
    "report": (None, ["question", "evaluation.iwae_samples", "suite.seed", f"runs.{RUN}.seed"]),
}


@pytest.fixture(scope="module")
def composed():
    before = Path.cwd()
    os.chdir(ROOT)
    yield compose_config(["experiment=smoke"])
    os.chdir(before)


@pytest.fixture
def project(composed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_params(composed)
    return tmp_path


def change(key, value=977):
    params = OmegaConf.load("params.yaml")
    OmegaConf.update(params, key, value)
    OmegaConf.save(params, "params.yaml")


@rejects(
    "config/frozen.py",
    "first_difference(self.params, select(read_params(), self.params))",
    "first_difference(self.params, self.params)",
    "parameters that changed while a stage ran are not noticed",
)
@pytest.mark.parametrize(
    ("stage", "name", "key"),
    [(stage, name, key) for stage, (name, keys) in STAGES.items() for key in keys],
)
def test_every_setting_that_dvc_records_for_a_stage_is_compared(project, stage, name, key):
    frozen = freeze(stage, name)
    assert OmegaConf.select(OmegaConf.load("params.yaml"), key) != 977
    frozen.check("kept")
    change(key)
    with pytest.raises(UserError, match=rf"since {stage}(@{name})? began: {key} was .* is 977 now"):
        frozen.check("kept")


def test_what_dvc_does_not_record_for_a_stage_may_change(project):
    frozen = freeze("train", RUN)
    change("runs.baseline.seed")
    change("compute.max_failures")
    frozen.check("kept")


def test_another_way_of_writing_the_same_settings_is_no_change(project):
    frozen = freeze("train", RUN)
    plain = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(plain, default_flow_style=True, sort_keys=True))
    frozen.check("kept")


def test_a_run_that_is_gone_has_changed(project):
    frozen = freeze("train", RUN)
    plain = yaml.safe_load(Path("params.yaml").read_text())
    del plain["runs"][RUN]
    Path("params.yaml").write_text(yaml.safe_dump(plain))
    with pytest.raises(UserError, match=rf"runs\.{RUN} was .* and is null now"):
        frozen.check("kept")


def test_only_an_entry_of_the_stages_own_group_is_frozen(project):
    with pytest.raises(UserError, match=r"'free_k1' is not under suite_runs in params\.yaml"):
        freeze("suite", "free_k1")
    with pytest.raises(UserError, match=r"'nobody' is not under runs in params\.yaml"):
        freeze("train", "nobody")
