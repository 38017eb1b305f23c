"""What an arm is, and its means over seeds."""

import shutil
from dataclasses import fields, replace
from math import inf, isnan, sqrt

import pytest

from ftmodel.analysis.differences import Difference
from pipelines.artifacts.results import Estimate, Figures
from pipelines.artifacts.run_results import read_finished
from pipelines.compare.arms import Arm, baselines, families, group_by_seed, looseness, over_seeds
from pipelines.compare.comparison import Comparison
from pipelines.report.tables import arm_row
from tests.compare.made_up import arm_of, baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.results import (
    arms_of,
    in_folder,
    loaded,
    run,
    write_experiment,
)


def test_a_seed_that_is_there_twice_is_no_second_seed(tmp_path):
    runs = {"one": run(), "two": run(), "three": run(seed=1)}
    arms = arms_of(write_experiment(tmp_path, runs, {}))
    assert [(arm.name, arm.seeds) for arm in arms] == [("one", [0, 1]), ("two", [0])]


@rejects("arms.over_seeds: =«all→any»(converged)", "an arm called converged as one of its seeds is")
@pytest.mark.parametrize(
    ("seeds", "arm"),
    [
        ([True, True], True), ([True, False], False), ([False, True], False),
        ([True, None], True), ([None, False], False), ([None, None], None),
    ],
)  # fmt: skip
def test_an_arm_has_converged_if_every_seed_that_was_asked_has(seeds, arm):
    estimates = [Estimate(1.0, 0.1, converged=each) for each in seeds]
    assert over_seeds(estimates).converged is arm


@rejects("arms.over_seeds: «→ / len(estimates) ** 0.5», monte_carlo", "seeds' errors averaged out")
def test_errors_over_seeds_are_means_and_filters_average_out():
    one, other = Estimate(1.0, 0.1, 0.3, 0.2), Estimate(4.0, 0.4, 0.4, 0.6)
    found = over_seeds([one, other])
    assert (found.mean, found.se, found.half_variance) == pytest.approx((2.5, 0.25, 0.4))
    assert found.monte_carlo == pytest.approx(0.25)  # √(0.3² + 0.4²) / 2
    assert found.spread == pytest.approx(3 / sqrt(2)) and isnan(over_seeds([one]).spread)


@rejects('arms.recipe: budgets"«→, "kappa_warmup_steps"»', "runs of a rising κ as seeds of one arm")
def test_seeds_of_another_recipe_are_another_arm(tmp_path):
    """Not a mean over both, which the same name but for the seed would suggest."""
    runs = {"free_s0": run(kappa=0.5), "free_s1": run(kappa=0.5, kappa_warmup_steps=1, seed=1)}
    arms = arms_of(write_experiment(tmp_path, runs, {}))
    assert [arm.name for arm in arms] == ["free_s0", "free_s1"]


@pytest.mark.parametrize(
    ("seeds", "words"), [([], ""), ([1], "1 of 3 collapsed"), ([0, 1, 2], "collapsed")]
)
def test_it_is_said_how_many_seeds_collapsed(seeds, words):
    arm = free_transformer("free", 1.1, 1.2, 1.3)
    for each in arm.runs:
        each.evaluation.collapsed = each.run.seed in seeds
    assert (arm.collapsed, arm.collapse) == (seeds, words)


@pytest.mark.parametrize(
    ("half", "converged", "others", "expected"),
    [
        (0.1, None, {}, 0.1),
        (0.1, True, {"elbo": 1.5}, 0.1),
        (0.1, False, {}, 0.2),
        (None, None, {}, 0.0),
        (0.1, None, {"elbo": 0.9, "iwae": 0.75, "prior": 2.0}, 0.25),
        (0.1, False, {"prior": 0.9}, 0.2),
    ],
)
def test_how_loose_a_bound_may_be(half, converged, others, expected):
    filtering = Estimate(1.0, 0.1, half_variance=half, converged=converged)
    bounds = {name: Estimate(mean, 0.1) for name, mean in others.items()}
    assert looseness(Figures(filtering=filtering, **bounds)) == pytest.approx(expected)
    assert looseness(Figures(nll=filtering)) == 0.0


WARM = {"kappa_warmup_steps": 1500}
ROSE = "κ rose from 0 over 1,500 steps"


@pytest.mark.parametrize(
    ("arm", "plain", "noise", "words"),
    [
        (baseline("a", 1, **WARM), True, False, ("baseline", "a: no latent", "")),
        (
            baseline("a", 1, extra_blocks=1),
            *(False, False, ("baseline + 1 block", "a: no latent", "")),
        ),
        (
            baseline("a", 1, extra_blocks=2, random_prefix=1),
            *(False, True),
            ("baseline + 2 blocks + random prefix of 1", "a: random prefix of 1", ""),
        ),
    ],
)
def test_baselines_in_words(arm, plain, noise, words):
    assert (arm.plain, arm.samples_noise, arm.preset_design) == (plain, noise, False)
    assert (arm.kind, arm.title, arm.warmup) == words


@pytest.mark.parametrize(
    ("kappa", "settings", "words"),
    [(0.0, {}, "0 bit"), (1.0, {}, "1 bit"), (1.5, WARM, "3/2 bits"), (2.0, {}, "2 bits")],
)
def test_free_transformers_in_words(kappa, settings, words):
    arm = free_transformer("a", 1, kappa=kappa, **settings)
    assert (arm.plain, arm.samples_noise, arm.preset_design) == (False, True, True)
    assert (arm.kind, arm.warmup) == ("Free Transformer", ROSE if settings else "")
    assert arm.title == f"a: κ = {words} per token"
    assert not free_transformer("a", 1, design={"latent.map": "linear"}).preset_design


def test_figures_are_in_the_unit_that_is_asked_for():
    """By itself an arm on text is compared by the byte."""
    arm = free_transformer("free", 1.0, 1.2)
    per_byte = Estimate(0.3, 0.0, half_variance=0.05), Estimate(0.5, 0.0, half_variance=0.15)
    for each, bound in zip(arm.runs, per_byte, strict=True):
        each.evaluation.bits_per_byte = Figures(filtering=bound)
    assert (arm.unit, arm.bound().mean, arm.bounds()) == ("bits_per_byte", 0.4, [0.3, 0.5])
    assert (arm.figures().filtering.mean, arm.looseness()) == pytest.approx((0.4, 0.1))
    unit = "bits_per_token"
    assert (arm.bound(unit).mean, arm.bounds(unit)) == (1.1, [1.0, 1.2])
    assert (arm.figures(unit).filtering.mean, arm.looseness(unit)) == (1.1, 0.0)


@rejects("Arm.if_all: «len(present) == len(self.runs)→present»", "a mean of the seeds that have it")
def test_a_figure_that_a_seed_lacks_has_no_mean():
    one, other = Figures(ce=Estimate(1.0, 0.1), kl=Estimate(2.0, 0.1)), Figures(ce=Estimate(3.0, 0))
    means = arm_of("free", [one, other]).figures()
    assert means.ce.mean == 2.0
    assert means.kl is None


@rejects("Arm.mean_of: return over_seeds(estimates«→[:1]»)", "the gap of a seed as that of its arm")
def test_what_an_arm_says_is_the_mean_over_its_seeds():
    """Two seeds are loose by half of a variance, one as another of its bounds lies below."""
    bounds = [{"half_variance": 0.2}, {"half_variance": 0.6}, {"half_variance": 0.1}]
    figures = [Figures(filtering=Estimate(5.0, 0.1, **each)) for each in bounds]
    figures[2] = replace(figures[2], iwae=Estimate(3.0, 0.1))
    arm = arm_of("free", figures)
    for each, speed in zip(arm.runs, (1.0, 2.0, 4.0), strict=True):
        each.evaluation.tokens_per_second = speed
    assert arm.looseness("bits_per_token") == pytest.approx((0.2 + 0.6 + 2.0) / 3)
    assert arm.tokens_per_second == pytest.approx((1 + 2 + 4) / 3)
    assert arm.gap is None and arm.first.run.seed == arm.run.seed == 0
    for seed, gap in ((0, 0.1), (2, 0.4)):  # of another it was not measured
        arm.runs[seed].evaluation.gap_nats_per_token = Estimate(gap, 0.01)
    assert Arm("free", arm.runs).gap.mean == pytest.approx(0.25)


@rejects('Comparison.convergence: or «→"" and »self', "a loose rival not marked")
def test_a_difference_has_not_converged_if_either_bound_has_not():
    def arm(converged):
        return arm_of("a", [Figures(filtering=Estimate(1.0, 0.1, converged=converged))])

    unknown = dict.fromkeys((each.name for each in fields(Difference)), inf)
    for pair in ((True, True), (False, True), (True, False), (False, False)):
        mine, other = map(arm, pair)
        found = Comparison(**unknown, arm=mine, other=other, unit="bits_per_token")
        assert found.convergence == ("" if all(pair) else " (not converged)")


@rejects("arms.baselines: «.setdefault(→[»arm.additions«, →] = »arm«)→»", "the last baseline alike")
def test_baselines_rise_with_what_they_have_beside_the_model_and_the_first_of_two_alike_is_one():
    arms = [baseline("prefix", 1, random_prefix=4), baseline("ten", 1, extra_blocks=10)]
    arms += [baseline("two", 1, extra_blocks=2), free_transformer("free", 1)]
    arms += [baseline("plain", 1), baseline("again", 1)]
    found = baselines(arms)
    assert [arm.name for arm in found] == ["plain", "two", "ten", "prefix"]
    assert [arm.plain for arm in found] == [True, False, False, False]


@rejects('arms.FAMILY: «tokens", "→»', "arms of other budgets compared")
def test_only_arms_of_the_same_data_model_tokens_and_parent_are_a_family(tmp_path):
    changes = [{}, {"model": "large"}, {"tokens": 13000}, {"data": "text"}]
    changes += [{"init_from": {"hf": f"models/{name}"}} for name in ("llama", "qwen")]
    changes += [{"init_from": {"run": "base0"}}]
    runs = {
        f"{name}{i}": run(kappa=kappa, **change)
        for i, change in enumerate(changes)
        for name, kappa in (("base", None), ("free", 1.0))
    }
    found = families(arms_of(write_experiment(tmp_path, runs, {})))
    assert [[arm.name for arm in family] for family in found] == [
        [f"base{i}", f"free{i}"] for i in range(7)
    ]


CHILDREN = {
    f"{arm}_s{seed}": run(kappa=kappa, seed=seed, init_from={"run": f"p_s{seed}"})
    for arm, kappa in (("a", None), ("b", 1.0))
    for seed in (0, 1)
}
FROM_PARENTS = {"p_s0": run(), "p_s1": run(seed=1), **CHILDREN}
SAME_NAME = {"a_s0": run(), "a_s1": run(seed=1), "a_s2": run(kappa=1.0, seed=2)}
REPEATED = {"one": run(), "two": run(), "three": run(seed=1)}


@rejects("compare.arms.group_by_seed: «arm→name»", "arms grouped by the runs that are there")
@pytest.mark.parametrize(
    ("runs", "unfinished", "expected"),
    [
        (FROM_PARENTS, "", [{"p": [0, 1]}, {"a": [0, 1], "b": [0, 1]}]),
        (FROM_PARENTS, "p_s0 p_s1", [{"a": [0, 1], "b": [0, 1]}]),
        (FROM_PARENTS, "p_s1 a_s0 b_s1", [{"p": [0]}, {"a": [1], "b": [0]}]),
        (REPEATED, "one", [{"one": [1], "two": [0]}]),
        (SAME_NAME, "", [{"a_s0": [0, 1], "a_s2": [2]}]),
    ],
)
def test_arms_and_families_do_not_depend_on_which_runs_are_finished(
    tmp_path, runs, unfinished, expected
):
    """Neither their names, nor whether they may be compared: each seed has its own parent."""
    write_experiment(tmp_path, runs, {})
    for name in unfinished.split():
        shutil.rmtree(tmp_path / "results/tiny" / name)
    experiment = loaded(tmp_path)
    with in_folder(tmp_path):
        found = families(group_by_seed(read_finished(experiment)))
    assert [{arm.name: arm.seeds for arm in family} for family in found] == expected
    starts = {arm.name: arm_row(arm)["init_from"] for family in found for arm in family}
    assert starts == {name: "p" if name in ("a", "b") else "" for name in starts}
