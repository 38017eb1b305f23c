"""The best settings of a sweep, as an experiment."""

import re

import pytest
from omegaconf import OmegaConf

from pipelines.config import derived
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from pipelines.host.errors import UserError
from pipelines.sweep.tune import best_arms, best_path, check_replaceable, write_best
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.sweeps import plan_of

BOUNDS = {None: 0.50, 0.015625: 0.501, 0.125: 0.47, 1.0: 0.60, 8.0: 0.90}


def bounds_of(plan, by_kappa):
    """A bound for each κ, and a little more for each further seed, by trial."""
    return {
        name: by_kappa[settings["run.kappa_bits"]] + 0.001 * settings["run.seed"]
        for name, settings in plan.settings.items()
    }


@arrives("sweep", "best")
@rejects("tune.best_arms: «fmean→min»(", "the best setting chosen by its luckiest seed")
def test_the_best_settings_have_the_lowest_means_over_seeds_and_the_best_baseline_is_one():
    kappa = plan_of(name="kappa")
    lucky = bounds_of(kappa, BOUNDS | {None: 0.95}) | {"free_k8_seed_2": 0.1}
    assert list(best_arms(kappa, lucky)) == ["free_k1_8", "free_k1_64", "baseline"]
    assert list(best_arms(plan_of("best=1", name="kappa"), lucky)) == ["free_k1_8", "baseline"]
    bounds = bounds_of(kappa, BOUNDS)
    assert list(best_arms(kappa, bounds)) == ["free_k1_8", "baseline"]
    done = {name: bound for name, bound in bounds.items() if not name.startswith("free_k1_8_")}
    assert list(best_arms(kappa, done)) == ["baseline", "free_k1_64"]
    several = plan_of("+space.optim.clip.grid_search=[0.5,2]", "~space.optim.lr")
    arms = best_arms(several, bounds_of(several, {None: 1.0, 0.5: 0.9}))
    assert list(arms) == ["free_k1_2_clip_0p5", "free_k1_2_clip_2", "baseline_clip_0p5"]


TEXT = ("run=text_free_k1_2", "compute.max_failures=1", "models.text_small.optim.clip=0.5")
DESIGN = ("+space.architecture.latent.map.grid_search=[linear]", "evaluation.iwae_samples=5")


@arrives("sweep", "best_seeds")
@rejects("tune.write_best: «1 + max→min»", "the best trained with the seeds that chose them")
@pytest.mark.parametrize("overrides", [(), TEXT, DESIGN, ("+space.run.latent_bits.choice=[3]",)])
def test_the_experiment_trains_the_very_settings_with_seeds_that_no_trial_had(conf, overrides):
    plan = plan_of("best_seeds=4", *overrides)
    arms = best_arms(plan, bounds_of(plan, {None: 1.0, 0.5: 0.9}))
    path = write_best(plan, arms)
    check_replaceable(path, "smoke")
    best = parse(compose_config([f"experiment={path.stem}"]), "")
    assert (best.name, best.seeds, len(best.runs)) == ("smoke_best", [2, 3, 4, 5], 8)
    for name, run in best.runs.items():
        trial = plan.trials[arms[name.rpartition("_s")[0]]]
        swept, tried = trial.experiment, trial.run
        assert vars(run) == vars(tried) | {"seed": run.seed, "model": run.model}
        assert re.fullmatch(rf"{tried.model}_lr_0p\d+(_map_linear)?", run.model)
        assert derived.model_config(best, run) == derived.model_config(swept, tried)
        assert best.models[run.model].optim == swept.models[tried.model].optim
        assert best.data[run.data] == swept.data[tried.data]
        assert best.evaluation == swept.evaluation and best.compute == swept.compute
    written = OmegaConf.load(path).arms
    assert [*written] == [*arms]  # the best one first
    for arm in written.values():  # defaults are not written down
        assert set(arm) <= {"data", "model", "tokens", "kappa_bits", "latent_bits"}
    assert len(best.suite_runs) == (8 if overrides == TEXT else 0)
    assert bool(best.suite.tasks) == (overrides == TEXT)


def test_an_experiment_that_no_sweep_has_written_is_not_replaced(conf):
    path = best_path("smoke")
    check_replaceable(path, "smoke")
    path.write_text("name: smoke_best")
    with pytest.raises(UserError, match="not written by the sweep, which would replace it"):
        check_replaceable(path, "smoke")
