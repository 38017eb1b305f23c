"""The experiment `ladder`: all arms at every size, and the same tokens for each parameter."""

from pathlib import Path

import pytest

from ftmodel.costs import parameters
from pipelines.compose import compose_config
from pipelines.config.load import parse

ROOT = Path(__file__).parents[2]
ARMS = {(None, 0), (None, 1), (0.0, 0), (0.5, 0), (1.0, 0)}  # κ and further blocks


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.chdir(ROOT)
    return parse(compose_config(["experiment=ladder"]), "conf/")


def test_every_size_has_every_arm_with_two_seeds(experiment):
    assert len(experiment.models) == 5
    for model in experiment.models:
        runs = [run for run in experiment.runs.values() if run.model == model]
        assert {(run.kappa_bits, run.extra_blocks) for run in runs} == ARMS
        assert len(runs) == 2 * len(ARMS) and {run.seed for run in runs} == {0, 1}


def test_tokens_for_each_parameter_of_the_baseline_are_the_same(experiment):
    sizes = {}
    for arm in experiment.arms.values():
        plain = {**vars(arm), "kappa_bits": None, "extra_blocks": 0}
        config = experiment.model_config(type(arm)(**plain))
        size = parameters(config, experiment.data[arm.data].vocab_size).total
        sizes[arm.model] = size
        tokens = experiment.steps(arm) * experiment.batch_tokens(arm)
        assert tokens == arm.tokens and tokens / size == pytest.approx(2, rel=2e-3)
    assert min(sizes.values()) < 0.32e6 and max(sizes.values()) > 15 * min(sizes.values())


def test_sizes_differ_in_nothing_but_size_rate_and_batch(experiment):
    same = ("context", "latent_bits", "tied", "document_mask")
    presets = experiment.models.values()
    assert len({tuple(getattr(p.architecture, key) for key in same) for p in presets}) == 1
    recipes = [{**vars(p.optim), "lr": 0, "batch_size": 0} for p in presets]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert {p.optim.schedule.value for p in presets} == {"wsd"}
