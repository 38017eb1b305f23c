"""The experiment `ladder`: all arms at every size, and the same tokens for each parameter."""

import pytest

from ftmodel.costs.training import parameters
from pipelines.config import derived
from tests.support.settings import composed_by_hydra

ARMS = {(None, 0), (None, 1), (0.0, 0), (0.5, 0), (1.0, 0)}  # κ and further blocks


@pytest.fixture(scope="module")
def experiment():
    return composed_by_hydra("experiment=ladder")


def test_every_size_has_every_arm_with_two_seeds(experiment):
    assert len(experiment.models) == 5
    for model in experiment.models:
        runs = [run for run in experiment.runs.values() if run.model == model]
        assert {(run.kappa_bits, run.extra_blocks) for run in runs} == ARMS
        assert len(runs) == 2 * len(ARMS) and {run.seed for run in runs} == {0, 1}


def test_tokens_for_each_parameter_of_the_baseline_are_the_same(experiment):
    sizes = {}
    for arm in experiment.arms.values():
        if arm.kappa_bits is None and not arm.extra_blocks:
            vocabulary = experiment.data[arm.data].vocab_size
            sizes[arm.model] = parameters(derived.model_config(experiment, arm), vocabulary).total
    for arm in experiment.arms.values():
        assert (
            derived.budgets(experiment, arm)[-1].steps * derived.batch_tokens(experiment, arm)
            == arm.tokens
        )
        assert arm.tokens / sizes[arm.model] == pytest.approx(2, rel=2e-3)
    assert min(sizes.values()) < 0.32e6 and max(sizes.values()) > 15 * min(sizes.values())


def test_sizes_differ_in_nothing_but_size_rate_and_batch(experiment):
    same = ("context", "latent_bits", "tied", "document_mask")
    presets = experiment.models.values()
    assert len({tuple(getattr(p.architecture, key) for key in same) for p in presets}) == 1
    recipes = [{**vars(p.optim), "lr": 0, "batch_size": 0} for p in presets]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert {p.optim.schedule.value for p in presets} == {"wsd"}
