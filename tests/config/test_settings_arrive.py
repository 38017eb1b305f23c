"""Every setting has a test that sees it arrive where it takes effect."""

from dataclasses import replace

from ftmodel.config import LatentDesign
from pipelines.artifacts import run_spec
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config import data, schema
from pipelines.host.files import tokens_folder
from tests.docs.settings_page import groups_within
from tests.support.arrivals import GROUPS, arrives, declared, settings
from tests.support.settings import smoke

ELSEWHERE = {  # of models, which ftmodel/ reads; what others are made of; of the report
    *(schema.ModelConfig, LatentDesign, schema.DesignChanges, schema.Preset),
    *(schema.Experiment, schema.Arm, schema.Training, schema.Expectation),
}


def test_every_setting_has_a_test_that_sees_it_arrive():
    known, seen = settings(), {*declared()}
    assert [*known - seen] == [], "declare it above a test: tests/support/arrivals.py"
    assert [*seen - known] == [], "no such setting"


def test_every_kind_of_settings_is_in_a_group():
    kinds = {*groups_within(schema.Experiment), *data.sources().values(), *data.KINDS.values()}
    assert kinds - ELSEWHERE <= {*GROUPS.values()}


@arrives("run", "data model tokens budgets latent_bits latent_block extra_blocks random_prefix")
def test_a_run_has_the_data_the_budgets_and_the_architecture_that_it_asks_for(monkeypatch):
    free, plain = "runs.text_free_k1_2", "runs.baseline"
    experiment = smoke(
        *(f"{free}.tokens=1100", f"{free}.budgets=[600]", f"{free}.latent_bits=3"),
        *(f"{free}.latent_block=2", f"{plain}.extra_blocks=2", f"{plain}.random_prefix=3"),
        "models.text_small.optim.warmup_steps=0",
    )
    spec, preset = RunSpec(experiment, "text_free_k1_2"), experiment.models["text_small"]
    monkeypatch.setattr(run_spec, "Shards", lambda folder: folder)
    assert spec.shards() == tokens_folder("stdlib") and spec.data is experiment.data["stdlib"]
    assert spec.optim is preset.optim
    budgets = [(each.listed, each.steps, each.annealed) for each in spec.budgets]
    assert budgets == [(600, 2, False), (1100, 4, True)]
    assert spec.config == replace(preset.architecture, latent_bits=3, latent_block=2)
    none = {"latent_bits": 0, "latent_block": None, "latent": LatentDesign()}
    preset = experiment.models["target_small"].architecture
    more = {"n_layers": preset.n_layers + 2, "random_prefix": 3}
    assert RunSpec(experiment, "baseline").config == replace(preset, **none, **more)
