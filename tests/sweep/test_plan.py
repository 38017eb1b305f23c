"""The plan of a sweep: mistakes are reported before any work, and which trials there are."""

import re
from dataclasses import replace
from itertools import product

import pytest
import yaml

from ftmodel.config import LatentDesign
from pipelines.config.init_from import InitFrom
from pipelines.config.schema import Run
from pipelines.host.errors import UserError
from pipelines.sweep import tune as sweep
from pipelines.sweep.plan import Sweep, read_space
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.sweeps import plan_of


@pytest.mark.parametrize("name", ["kappa", "smoke"])
def test_every_shipped_sweep_is_valid(name):
    plan = plan_of(name=name)
    assert len(plan.trials) > 1
    base = {"experiment": plan.sweep.experiment, "run": "free_k1_8", "space": plan.sweep.space}
    assert plan.sweep == Sweep(**base, samples=1, seed=0, best=2, best_seeds=3)
    for own, spec in plan.trials.items():
        assert list(spec.experiment.runs) == [own] == [spec.name]
        assert spec.experiment.name == f"sweep_{name}"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("runs: {seed: {grid_search: [1]}}", "runs: a key starts with run, architecture, optim"),
        ("run.seed: {grid: [1]}", "run.seed: 'grid' is not one of grid_search, choice, uniform"),
        ("run.seed: {sample_from: [1]}", "run.seed: 'sample_from' is not one of"),
        ("run.seed: {grid_search: []}", "run.seed.grid_search: not a list of arguments"),
        ("run.seed: 3", "run.seed: not a mapping such as {grid_search"),
        ("run.seed: {choice: [3], randn: [3]}", "run.seed: one function, not choice and randn"),
        ("{run: {seed: {choice: [3]}}, run.seed: {choice: [3]}}", "run.seed: given twice"),
        ("optim.lr: {uniform: [1, .inf]}", "optim.lr.uniform: [1, inf]: Uniform requires a upper"),
        ("optim.lr: {loguniform: [0.1]}", "optim.lr.loguniform: [0.1]: loguniform() missing 1"),
        ("optim.lr: {loguniform: [0, 0.1]}", "optim.lr.loguniform: [0, 0.1]: LogUniform requires"),
        ("optim.lr: {randint: [3, 1]}", "optim.lr.randint: [3, 1]: low >= high"),
    ],
)
def test_a_mistake_in_the_space_is_named_with_its_key(space, words):
    with pytest.raises(ValueError, match=re.escape(f"space.{words}")):
        read_space(yaml.safe_load(space))


MISTAKES = [
    ("space.run.kapa_bits.choice=[1]", "kapa_bits: 'kapa_bits' is not one of data, model"),
    ("space.optim.rate.choice=[1]", "models.target_small.optim.rate: 'rate' is not one of"),
    ("space.optim.batch_size.uniform=[1,4]", "optim.batch_size: Value '"),
    ("space.run.kappa_bits.grid_search=[9]", "kappa_bits: 9.0 is outside 0 … 8"),
    ("space.run.data.grid_search=[target,stdlib]", "bounds on stdlib and target cannot be"),
    (
        "~space.optim.lr ++space.optim.lr.grid_search=[0.01,0.010000001]",
        "space: two different settings would be called baseline_seed_0_lr_0p01",
    ),
    ("~space", "space: empty"),
    ("run=nope", "experiment smoke: 'nope' is not one of baseline, free_k1_8"),
    ("experiment=nope", "experiment: 'nope' is not one of "),
    ("samples=2 ~space.optim", "samples: 2, but space has nothing that is drawn"),
    ("samples=0", "samples: 0 must be at least 1"),
    ("seed=-1", "seed: -1 must be at least 0"),
    ("best=0", "best: 0 must be at least 1"),
    ("best_seeds=0", "best_seeds: 0 must be at least 1"),
    ("concurrent=0", "concurrent: 0 must be at least 1"),
    ("asha={grace_period:1.5}", "asha: grace_period must be <= max_t!"),
    ("asha={patience:1}", "asha: AsyncHyperBandScheduler.__init__() got an unexpected keyword"),
    ("samplez=3", "; did you mean samples?"),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_its_key(override, words):
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        plan_of(*override.split())
    assert "conf/" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage: ftlab sweep"),
        (["sweep=smoke", "sweep=kappa"], "usage: ftlab sweep"),
        (["sweep=../smoke"], "'../smoke' is not one of kappa, smoke"),
        (["sweep=smoke", "+space.run.seed.grid=[1]"], "one function, not grid_search and grid"),
    ],
)
def test_the_command_begins_nothing_with_wrong_arguments(conf, arguments, words):
    with pytest.raises(UserError, match=words):
        sweep.main(arguments)
    assert [path.name for path in conf.iterdir()] == ["conf"]


@arrives("sweep", "space")
def test_settings_reach_the_experiment_of_a_trial():
    plan = plan_of(
        "~space.run",
        "++space.run={kappa_bits: {choice: [0.25]}, seed: {choice: [7]}}",
        "++space.run.tokens.choice=[20800]",
        "~space.optim.lr",
        "++space.optim.clip.grid_search=[0.5]",
        "++space.architecture.latent_bits.grid_search=[3]",
        "++space.architecture.latent.inject.grid_search=[residual]",
        "models.target_small.optim.lr=0.5",
        "evaluation.iwae_samples=5",
    )
    run, experiment = plan.first.run, plan.first.experiment
    preset = experiment.models["target_small"]
    assert (run.kappa_bits, run.tokens, run.data) == (0.25, 20800, "target")
    assert (preset.optim.clip, preset.optim.lr, preset.optim.batch_size) == (0.5, 0.5, 8)
    assert (preset.architecture.latent_bits, preset.architecture.d_model) == (3, 16)
    assert preset.architecture.latent == LatentDesign(inject="residual")
    assert experiment.evaluation.iwae_samples == 5


@arrives("sweep", "experiment run")
def test_a_trial_is_the_only_run_of_an_experiment_of_arms():
    space = ("~space.optim", "~space.run.kappa_bits", "space.run.seed.grid_search=[4,5]")
    plan = plan_of("experiment=kappa_text", "run=free_k1_s0", *space)
    assert [spec.run.seed for spec in plan.trials.values()] == [4, 5]
    assert not any(s.experiment.arms or s.experiment.seeds for s in plan.trials.values())


@arrives("sweep", "samples seed")
def test_draws_are_the_same_again_at_every_point_of_the_grid_and_more_samples_add_to_them():
    def drawn(*overrides):
        settings = plan_of.__wrapped__(*overrides).settings.values()
        return [tuple(each.values()) for each in settings]

    few, again, more = (drawn(f"samples={n}") for n in (2, 2, 3))
    assert few == again == more[: len(few)]
    rates = [*dict.fromkeys(rate for _, _, rate in more)]
    assert len(rates) == 3 and all(1e-3 <= rate <= 1e-2 for rate in rates)
    assert sorted(few, key=repr) == sorted(product((None, 0.5), (0, 1), rates[:2]), key=repr)
    assert drawn("seed=1")[0] != few[0]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("architecture.latent_std", [0.1, 0.2]),
        ("architecture.latent.map", ["table", "linear"]),
        ("run.latent_bits", [4, 6]),
        ("run.kappa_warmup_steps", [0, 9]),
        ("run.beta", [0.5, 2.0]),
        ("run.init_from.latent_rms", [0.2, 0.4]),
        ("run.init_from.copy_encoder", [True, False]),
        ("optim.latent_lr", [0.5, 2.0]),
    ],
)
def test_a_baseline_is_not_trained_once_for_each_latent(key, values):
    parent = ["runs.free_k1_8.init_from.hf=models/llama"] * ("init_from" in key)
    space = f"+space.{key}.grid_search={values}".replace(" ", "")
    plan = plan_of(space, "~space.run.seed", *parent)
    assert [key in settings for settings in plan.settings.values()] == [False, True, True]
    assert [settings.get(key) for settings in plan.settings.values()] == [None, *values]


@rejects("plan.trial_spec: «→not »node.run.kappa_bits «is None→»", "κ = 0 with the preset's latent")
def test_a_threshold_of_0_is_trained_with_each_latent():
    space = ("space.run.kappa_bits.grid_search=[0,0.5]", "~space.run.seed")
    plan = plan_of(*space, "+space.run.latent_bits.grid_search=[3,4]")
    runs = [spec.run for spec in plan.trials.values()]
    kinds = [(run.kappa_bits, run.latent_bits) for run in runs]
    assert sorted(kinds) == [(0, 3), (0, 4), (0.5, 3), (0.5, 4)]
    assert not any("baseline" in name for name in plan.trials)


def test_the_baseline_of_a_sweep_over_a_run_with_settings_of_its_latent_has_none_of_them():
    latent = "runs.free_k1_8.latent={encoder: separate, encoder_layers: 3}"
    start = "runs.free_k1_8.init_from={hf: x, copied_lr: 0.1, latent_rms: 0.3, copy_encoder: false}"
    others = ("runs.free_k1_8.kappa_warmup_steps=3", "runs.free_k1_8.latent_block=2")
    baseline = plan_of(latent, start, *others, "~space.run.seed").first.run
    plain = Run("target", "target_small", None, tokens=10_400)
    assert baseline == replace(plain, init_from=InitFrom("x", copied_lr=0.1))
