"""The best settings of a sweep as an experiment, and the table of its trials."""

import re

import pytest
from omegaconf import OmegaConf
from ray.exceptions import ActorDiedError, RayTaskError

from pipelines.artifacts.results import Estimate
from pipelines.config import derived
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from pipelines.host.errors import UserError
from pipelines.sweep.plan import (
    BOUND,
    DONE,
    ERROR,
    FAILED,
    FRACTION,
    STOPPED,
    TrialOutcome,
    trial_table,
)
from pipelines.sweep.tune import best_arms, best_path, check_replaceable, write_best
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.sweeps import plan_of

BOUNDS = {None: 0.50, 0.015625: 0.501, 0.125: 0.47, 1.0: 0.60, 8.0: 0.90}


def outcomes_of(plan, bounds, seed_steps=0.001):
    """All trials are done: a bound for each κ, and a little more for each further seed."""
    return [
        TrialOutcome(name, DONE, 1.0, Estimate(bound, 0.01))
        for name, settings in plan.settings.items()
        for bound in [bounds[settings["run.kappa_bits"]] + seed_steps * settings["run.seed"]]
    ]


@pytest.fixture
def kappa():
    """The shipped sweep over κ."""
    return plan_of(name="kappa")


@arrives("sweep", "best")
@rejects("tune.best_arms: «fmean→min»(", "the best setting chosen by its luckiest seed")
def test_the_best_settings_have_the_lowest_means_over_seeds_and_the_best_baseline_is_one(kappa):
    outcomes = outcomes_of(kappa, BOUNDS | {None: 0.95})
    lucky = next(i for i, each in enumerate(outcomes) if each.name == "kappa_bits_8_seed_2")
    outcomes[lucky] = TrialOutcome("kappa_bits_8_seed_2", DONE, 1.0, Estimate(0.1, 0.01))
    arms = best_arms(kappa, outcomes)
    assert list(arms) == ["kappa_bits_0p125", "kappa_bits_0p015625", "baseline"]
    one = best_arms(plan_of("best=1", name="kappa"), outcomes)
    assert list(one) == ["kappa_bits_0p125", "baseline"]
    assert list(best_arms(kappa, outcomes_of(kappa, BOUNDS))) == ["kappa_bits_0p125", "baseline"]
    several = plan_of("+space.optim.clip.grid_search=[0.5,2]")
    arms = best_arms(several, outcomes_of(several, {None: 1.0, 0.5: 0.9}))
    assert list(arms) == ["kappa_bits_0p5_clip_0p5", "kappa_bits_0p5_clip_2", "baseline_clip_0p5"]


def test_trials_without_a_bound_are_not_among_the_best(kappa):
    ended = [
        TrialOutcome(each.name, STOPPED, 0.5) if "0p125" in each.name else each
        for each in outcomes_of(kappa, BOUNDS)
    ]
    assert list(best_arms(kappa, ended)) == ["baseline", "kappa_bits_0p015625"]


TEXT = ("run=text_free_k1_2", "compute.max_failures=1", "models.text_small.optim.clip=0.5")
DESIGN = ("+space.architecture.latent.map.grid_search=[linear]", "evaluation.iwae_samples=5")


@arrives("sweep", "best_seeds")
@rejects("tune.write_best: «1 + max→min»", "the best trained with the seeds that chose them")
@pytest.mark.parametrize("overrides", [(), TEXT, DESIGN, ("+space.run.latent_bits.choice=[3]",)])
def test_the_experiment_trains_the_very_settings_with_seeds_that_no_trial_had(conf, overrides):
    plan = plan_of("best_seeds=4", *overrides)
    arms = best_arms(plan, outcomes_of(plan, {None: 1.0, 0.5: 0.9}))
    path = write_best(plan, arms)
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
    scored = compose_config(["experiment=smoke"]).suite if overrides == TEXT else None
    written = OmegaConf.load(path).arms
    assert [*written] == [*arms]  # the best one first
    for arm in written.values():  # defaults are not written down
        assert set(arm) <= {"data", "model", "tokens", "kappa_bits", "latent_bits"}
    assert not scored or OmegaConf.to_container(scored)["tasks"].keys() == best.suite.tasks.keys()
    assert len(best.suite_runs) == (8 if overrides == TEXT else 0)


def test_an_experiment_that_no_sweep_has_written_is_not_replaced(conf):
    plan, path = plan_of(), best_path("smoke")
    check_replaceable(path, "smoke")
    write_best(plan, best_arms(plan, outcomes_of(plan, {None: 1.0, 0.5: 0.9})))
    check_replaceable(path, "smoke")
    path.write_text("name: smoke_best")
    with pytest.raises(UserError, match="not written by the sweep, which would replace it"):
        check_replaceable(path, "smoke")


def task_error(cause):
    return RayTaskError("train", "Traceback", cause)


@pytest.mark.parametrize(
    ("last", "error", "state", "words"),
    [
        ({FRACTION: 1.0, BOUND: 0.5, ERROR: 0.1}, None, DONE, "bound 0.5000 ± 0.1000"),
        ({FRACTION: 0.2}, None, STOPPED, "stopped early, at 20% of its budget"),
        ({FRACTION: 0.3}, task_error(UserError("lr: too\nhigh")), FAILED, "budget: lr: too high"),
        (
            {},
            task_error(ZeroDivisionError("bug")),
            FAILED,
            "at 0% of its budget: ZeroDivisionError",
        ),
        ({FRACTION: 0.3}, ActorDiedError(), FAILED, "ActorDiedError: The actor died"),
    ],
)
def test_how_a_trial_has_ended_in_a_few_words(last, error, state, words):
    outcome = TrialOutcome.of("t", last, error)
    assert outcome.state == state
    assert words in str(outcome)


def test_the_table_has_the_lowest_bound_first_and_unfinished_trials_last():
    outcomes = [
        TrialOutcome("lost", FAILED, 0.1, error="it burns"),
        TrialOutcome("worse", DONE, 1.0, Estimate(0.6, 0.1)),
        TrialOutcome("stopped", STOPPED, 0.5),
        TrialOutcome("better", DONE, 1.0, Estimate(0.5, 0.1)),
    ]
    assert trial_table(outcomes) == [
        "trial    state          budget  bound, bits per token",
        "better   done           100%    0.5000 ± 0.1000",
        "worse    done           100%    0.6000 ± 0.1000",
        "stopped  stopped early  50%     –",
        "lost     failed         10%     it burns",
    ]
