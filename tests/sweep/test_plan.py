"""The plan of a sweep: mistakes are reported before any work, and which trials there are."""

import re
import shutil
from itertools import product

import pytest
import yaml

from ftmodel.designs.design import LatentDesign
from pipelines.common.errors import UserError
from pipelines.sweep import tune as sweep
from pipelines.sweep.plan import Dimension, read_space, trial_name
from pipelines.sweep.ranking import SweepAnalysis
from tests.support.mutants import rejects
from tests.support.sweeps import ROOT, plan_of


@pytest.mark.parametrize("name", ["kappa", "smoke"])
def test_every_shipped_sweep_is_valid(name):
    plan = plan_of(name=name)
    assert len(plan.trials) > 1
    for own, experiment in plan.trials.items():
        assert list(experiment.runs) == [own]
        assert experiment.name == f"sweep_{name}"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("optim.rate: {grid: [1]}", "optim.rate: no such setting; optim has batch_size"),
        ("runs: {seed: {grid: [1]}}", "runs.seed: no such setting; a key starts with run, arch"),
        ("run.seed: {grid: []}", "run.seed.grid: not a list of values"),
        ("run.seed: {grid: [[3]]}", "run.seed.grid: values are single"),
        ("run.seed: 3", "run.seed: not a mapping such as {grid"),
        ("run.seed: {grid: [3], choice: [3]}", "run.seed: one of grid, choice, uniform, log"),
        ("optim.lr: {uniform: [1, .inf]}", "optim.lr.uniform: [1, inf] is not [lowest"),
        ("optim.lr: {loguniform: [1, 0.1]}", "optim.lr.loguniform: [1, 0.1] is not [lowest"),
        ("optim.lr: {loguniform: [0, 0.1]}", "optim.lr.loguniform: the lowest, 0, must be"),
        ("optim.batch_size: {uniform: [1, 4]}", "optim.batch_size.uniform: batch_size is a whole"),
    ],
)
def test_a_mistake_in_the_space_is_named_with_its_key(space, words):
    with pytest.raises(ValueError, match=re.escape(f"space.{words}")):
        read_space(yaml.safe_load(space))


MISTAKES = [
    ("space.run.kapa_bits.grid=[1]", "space.run.kapa_bits: no such setting; run has data, model"),
    ("space.run.kappa_bits.grid=[9]", "kappa_bits: 9.0 is outside 0 … 8"),
    ("space.run.data.grid=[target,stdlib]", "bounds on stdlib and target cannot be compared"),
    ("~space", "space: empty"),
    ("run=nope", "run: 'nope' is not one of baseline, free_k1_8"),
    ("experiment=nope", "Could not find 'experiment/nope'"),
    ("samples=2 ~space.optim", "samples: 2, but space has nothing that is drawn"),
    ("samples=0", "samples: 0 must be at least 1"),
    ("asha={grace:1}", "asha.grace: 1.0 is not a fraction"),
    ("asha={patience:1}", "asha.patience: Key 'patience' not in 'Asha'"),
    ("samplez=3", "samplez: Key 'samplez' not in 'Experiment'"),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_its_key(override, words):
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        plan_of(*override.split())
    assert "conf/" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_asha_does_not_compare_tokenizers():
    two = (
        "run=text_free_k1_2",
        "+source@data.large=text",
        "data.large={parts: ${data.stdlib.parts}, validation_share: 0.25, vocab_size: 512}",
        "space.run.data.grid=[stdlib,large]",
    )
    assert plan_of(*two).unit == "bits_per_byte"
    with pytest.raises(UserError, match="asha: it compares trials in bits per token"):
        plan_of(*two, "asha={grace: 0.5}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage: python -m pipelines.sweep"),
        (["sweep=smoke", "sweep=kappa"], "usage: python -m pipelines.sweep"),
        (["sweep=../smoke"], "sweep: '../smoke' is not one of kappa, smoke"),
        (["sweep=smoke", "+space.run.kapa_bits.grid=[1]"], "space.run.kapa_bits: no such setting"),
    ],
)
def test_the_command_begins_nothing_with_wrong_arguments(tmp_path, monkeypatch, arguments, words):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        sweep.main(arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["conf"]


def test_settings_reach_the_experiment_of_a_trial():
    plan = plan_of(
        "space.run={kappa_bits: {grid: [0.25]}, seed: {grid: [7]}, tokens: {grid: [20800]}}",
        "~space.run.kappa_bits",
        "++space.run.kappa_bits.choice=[0.25]",
        "~space.optim.lr",
        "++space.optim.clip.grid=[0.5]",
        "++space.architecture.latent_bits.grid=[3]",
        "++space.architecture.latent.inject.grid=[residual]",
        "models.target_small.optim.lr=0.5",
        "evaluation.iwae_samples=5",
    )
    ((name, experiment),) = plan.trials.items()
    run, preset = experiment.runs[name], experiment.models["target_small"]
    assert (run.kappa_bits, run.tokens, run.data) == (0.25, 20800, "target")
    assert (preset.optim.clip, preset.optim.lr, preset.optim.batch_size) == (0.5, 0.5, 8)
    assert (preset.architecture.latent_bits, preset.architecture.d_model) == (3, 16)
    assert preset.architecture.latent == LatentDesign(inject="residual")
    assert experiment.evaluation.iwae_samples == 5


def test_a_trial_is_the_only_run_of_an_experiment_of_arms():
    space = ("~space.optim", "~space.run.kappa_bits", "space.run.seed.grid=[4,5]")
    plan = plan_of("experiment=kappa_text", "run=free_k1_s0", *space)
    assert [run.seed for e in plan.trials.values() for run in e.runs.values()] == [4, 5]
    assert not any(e.arms or e.seeds for e in plan.trials.values())


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


def test_loguniform_is_uniform_in_the_logarithm():
    draws = [Dimension("optim.lr", "loguniform", (1e-4, 1.0)).draw(0, i) for i in range(400)]
    assert 160 < sum(draw < 1e-2 for draw in draws) < 240


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("architecture.latent_std", [0.1, 0.2]),
        ("architecture.latent.map", ["table", "linear"]),
        ("run.latent_bits", [4, 6]),
        ("run.kappa_warmup_steps", [0, 9]),
    ],
)
def test_a_baseline_is_not_trained_once_for_each_latent(key, values):
    plan = plan_of(f"+space.{key}.grid={values}".replace(" ", ""), "~space.run.seed")
    kinds = [(s["run.kappa_bits"], s[key]) for s in plan.settings.values()]
    assert kinds == [(None, values[0]), (0.5, values[0]), (0.5, values[1])]
    named = [[*SweepAnalysis(plan, {}).setting_of(name)] for name in plan.trials]
    assert named == [["run.kappa_bits"], *[["run.kappa_bits", key]] * 2]


@rejects(
    "if run.kappa_bits is None:",
    "if not run.kappa_bits:",
    "a threshold of 0 tried with one latent alone",
    file="sweep/plan.py",
)
@rejects(
    "if run.kappa_bits is not None or not",
    "if run.kappa_bits or not",
    "a setting with a threshold of 0 named like a baseline's",
)
def test_a_threshold_of_0_is_trained_with_each_latent():
    space = ("space.run.kappa_bits.grid=[0,0.5]", "+space.architecture.latent_std.grid=[0.1,0.2]")
    plan = plan_of(*space, "~space.run.seed")
    kinds = [(s["run.kappa_bits"], s["architecture.latent_std"]) for s in plan.settings.values()]
    assert sorted(kinds) == [(0, 0.1), (0, 0.2), (0.5, 0.1), (0.5, 0.2)]
    sweep = SweepAnalysis(plan, {})
    assert all("architecture.latent_std" in sweep.setting_of(name) for name in plan.trials)


def test_trial_names():
    assert trial_name({"run.kappa_bits": 0.125, "run.seed": 0}) == "kappa_bits_0p125_seed_0"
    assert trial_name({"run.kappa_bits": None}) == "baseline"
    assert trial_name({"run.kappa_bits": 1.0}) == "kappa_bits_1"
    assert trial_name({"optim.lr": 1e-5, "architecture.tied": True}) == "lr_1em05_tied_true"
