"""What a stage's parameters were when it started, and what tells them from others."""

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from pipelines.config.compose import write_params
from pipelines.config.load import freeze
from pipelines.host.errors import UserError
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.settings import composed

RUN = "text_free_k1_2"
# by stage: the name of its entry, and a change of each group of settings that DVC records for it
STAGES = {
    "data": ("stdlib", "data.stdlib.seed"),
    "tokenize": ("stdlib", "data.stdlib.vocab_size"),
    "train": (
        RUN,
        f"name compute.precision runs.{RUN}.seed runs.{RUN}.kappa_bits models.text_small.optim.lr",
    ),
    "evaluate": (RUN, "name evaluation.seed evaluation.particles"),
    "suite": (RUN, "name suite.limit suite.tasks.words.shots"),
    "report": (None, f"question evaluation.iwae_samples suite.seed runs.{RUN}.seed"),
}


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    written = composed()
    monkeypatch.chdir(tmp_path)
    write_params(written)


def change(key, value=977):
    params = OmegaConf.load("params.yaml")
    OmegaConf.update(params, key, value)
    OmegaConf.save(params, "params.yaml")


@rejects("Frozen.check: «select(read_params(), self.params)→self.params»", "changes go unnoticed")
@pytest.mark.parametrize("stage", STAGES)
def test_every_setting_that_dvc_records_for_a_stage_is_compared(stage):
    name, keys = STAGES[stage]
    frozen, before = freeze(stage, name), Path("params.yaml").read_text()
    stage = f"{stage}@{name}" if name else stage
    frozen.check("kept")
    for key in keys.split():
        change(key)
        words = rf"while {stage} was running \({key} was .* is 977 now\)"
        with pytest.raises(UserError, match=words):
            frozen.check("kept")
        Path("params.yaml").write_text(before)


def test_what_dvc_does_not_record_for_a_stage_may_change():
    """Nor does the way in which the same settings are written count."""
    frozen = freeze("train", RUN)
    change("runs.baseline.seed")
    change("compute.max_failures")
    plain = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(plain, default_flow_style=True, sort_keys=True))
    frozen.check("kept")


@rejects("load.first_difference: «{**then, **now}→then»", "a setting added meanwhile is missed")
def test_a_setting_that_is_new_and_a_run_that_is_gone_are_changes():
    frozen = freeze("train", RUN)
    params = OmegaConf.load("params.yaml")
    OmegaConf.save(
        {**params, "runs": {**params.runs, RUN: {**params.runs[RUN], "a": 1}}}, "params.yaml"
    )
    with pytest.raises(UserError, match=rf"runs\.{RUN}\.a was null and is 1 now"):
        frozen.check("kept")
    del params.runs[RUN]
    OmegaConf.save(params, "params.yaml")
    with pytest.raises(UserError, match=rf"runs\.{RUN} was {{.*data: stdlib.*}} and is null now"):
        frozen.check("kept")


def test_only_an_entry_of_the_stages_own_group_is_frozen():
    with pytest.raises(UserError, match=r"'free_k1' is not under suite_runs in params\.yaml"):
        freeze("suite", "free_k1")
    with pytest.raises(UserError, match=r"'nobody' is not under runs in params\.yaml"):
        freeze("train", "nobody")


@pytest.mark.parametrize(
    "command", [("data", "target"), ("train", "free_k1"), ("evaluate", "free_k1"), ("report",)]
)
def test_a_mistake_in_params_stops_every_stage(command):
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("kappa_bits: 1.0", "kappa_bitz: 1.0"))
    with pytest.raises(UserError, match=r"kappa_bitz: .*; did you mean kappa_bits\?$"):
        call(*command)
