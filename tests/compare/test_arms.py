"""What an arm is, and its means over seeds."""

import shutil
from dataclasses import replace
from math import inf, isnan, sqrt
from statistics import stdev

import pytest

from pipelines.artifacts.results import Details, Estimate, EvaluationResult, Figures
from pipelines.artifacts.run_results import RunResults, read_finished
from pipelines.compare.arms import Arm, baselines, families, group_by_seed, over_seeds
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import Run
from pipelines.report.tables import arm_row
from tests.support.mutants import rejects
from tests.support.results import (
    PAIR,
    arms_of,
    in_folder,
    loaded,
    run,
    seeded,
    write_experiment,
)


@rejects(
    "config.arms.group_by_seed: «runs[other].seed != run.seed→True»",
    "a repeated seed taken for another",
)
def test_a_seed_that_is_there_twice_is_no_second_seed(tmp_path):
    runs = {"one": run(), "two": run(), "three": run(seed=1)}
    arms = arms_of(write_experiment(tmp_path, runs, {}))
    assert [(arm.name, arm.seeds) for arm in arms] == [("one", [0, 1]), ("two", [0])]


@rejects(
    "over_seeds: estimates)«→ / len(estimates) ** 0.5»", "errors on the same documents averaged out"
)
def test_mean_and_spread_are_over_seeds_and_errors_do_not_shrink(tmp_path):
    bounds = {"base": [0.5, 0.53, 0.59], "free": [0.4] * 3}
    base, free = seeded(tmp_path, PAIR, bounds).arms
    assert base.bound().mean == pytest.approx(0.54)
    assert base.bound().spread == pytest.approx(stdev(bounds["base"]))
    assert base.bound().se == 0.0001  # all seeds are scored on the same documents
    own = free.bound().half_variance  # as written, the same as the error over repeated filters
    assert free.bound().monte_carlo == pytest.approx(own / sqrt(3)) and own == 0.0001 / 20


@rejects(
    "over_seeds: converged=«all→any»(converged)", "an arm called converged as one of its seeds is"
)
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


def test_errors_over_seeds_are_means_and_filters_average_out():
    one, other = Estimate(1.0, 0.1, 0.3, 0.2), Estimate(4.0, 0.4, 0.4, 0.6)
    found = over_seeds([one, other])
    assert (found.mean, found.se, found.half_variance) == pytest.approx((2.5, 0.25, 0.4))
    assert found.monte_carlo == pytest.approx(0.25)  # √(0.3² + 0.4²) / 2
    assert found.spread == pytest.approx(3 / sqrt(2)) and isnan(over_seeds([one]).spread)


@rejects('recipe: "«→, "kappa_warmup_steps"»)', "runs of a rising κ as seeds of one arm")
def test_seeds_of_another_recipe_are_another_arm(tmp_path):
    """Not a mean over both, which the same name but for the seed would suggest."""
    runs = {"free_s0": run(kappa=0.5), "free_s1": run(kappa=0.5, kappa_warmup_steps=1, seed=1)}
    arms = arms_of(write_experiment(tmp_path, runs, {}))
    assert [arm.name for arm in arms] == ["free_s0", "free_s1"]


def measured(seed, figures, collapsed=False, **settings):
    evaluation = EvaluationResult(1, 1, 2.0**seed, figures, collapsed=collapsed)
    spec = Run(**{"kappa_bits": 1.0, "seed": seed} | settings)
    return RunResults(f"free_s{seed}", spec, 3, "target", evaluation, Details([], [], []), [])


@rejects("Arm.collapse: «not self.collapsed→True»", "an arm called collapsed as one seed is")
@pytest.mark.parametrize(
    ("seeds", "words"), [([], ""), ([1], "1 of 3 collapsed"), ([0, 1, 2], "collapsed")]
)
def test_it_is_said_how_many_seeds_collapsed(seeds, words):
    arm = Arm("free", [measured(seed, Figures(), seed in seeds) for seed in range(3)])
    assert (arm.collapsed, arm.collapse) == (seeds, words)


@rejects(
    "Arm.if_all: «len(present) == len(self.runs)→present»",
    "a mean over the seeds that have a figure",
)
def test_a_figure_that_a_seed_lacks_has_no_mean():
    one, other = Figures(ce=Estimate(1.0, 0.1), kl=Estimate(2.0, 0.1)), Figures(ce=Estimate(3.0, 0))
    means = Arm("free", [measured(0, one), measured(1, other)]).figures()
    assert means.ce.mean == 2.0
    assert means.kl is None


@rejects("Arm.mean_of: return over_seeds(estimates«→[:1]»)", "the gap of a seed as that of its arm")
@rejects("Arm.looseness: «fmean→max»", "an arm as loose as its loosest seed")
def test_what_an_arm_says_is_the_mean_over_its_seeds():
    """Two seeds are loose by half of a variance, one as another of its bounds lies below."""
    bounds = [{"half_variance": 0.2}, {"half_variance": 0.6}, {"half_variance": 0.1}]
    figures = [Figures(filtering=Estimate(5.0, 0.1, **each)) for each in bounds]
    others = {name: Estimate(mean, 0.1) for name, mean in zip(OTHERS, (4.9, 3.0, 4.5), strict=True)}
    figures[2] = replace(figures[2], **others)
    arm = Arm("free", [measured(seed, each) for seed, each in enumerate(figures)])
    assert arm.looseness("bits_per_token") == pytest.approx((0.2 + 0.6 + 2.0) / 3)
    assert arm.tokens_per_second == pytest.approx((1 + 2 + 4) / 3)
    assert arm.gap is None and arm.first.run.seed == arm.run.seed == 0
    for seed, gap in ((0, 0.1), (2, 0.4)):  # of another it was not measured
        arm.runs[seed].evaluation.gap_nats_per_token = Estimate(gap, 0.01)
    assert Arm("free", arm.runs).gap.mean == pytest.approx(0.25)


OTHERS = ("elbo", "iwae", "prior")


@rejects(
    "Comparison.convergence: « or self.other.bound(self.unit).convergence→»",
    "a loose rival not marked",
)
def test_a_difference_has_not_converged_if_either_bound_has_not():
    def arm(converged):
        return Arm("a", [measured(0, Figures(filtering=Estimate(1.0, 0.1, converged=converged)))])

    unknown = dict.fromkeys(("mean", "documents", "own", "pooled", "equality", "threshold"), inf)
    for pair in ((True, True), (False, True), (True, False), (False, False)):
        mine, other = map(arm, pair)
        found = Comparison(**unknown, arm=mine, other=other, unit="bits_per_token")
        assert found.convergence == ("" if all(pair) else " (not converged)")


@rejects("arms.baselines: sorted(by_additions«→, key=str»)", "ten further blocks before two")
@rejects(
    "arms.baselines: by_additions«.setdefault(arm.additions, arm)→[arm.additions] = arm»",
    "of baselines alike the last",
)
def test_baselines_rise_with_what_they_have_beside_the_model_and_the_first_of_two_alike_is_one():
    def baseline(name, prefix=0, blocks=0, kappa=None):
        settings = {"random_prefix": prefix, "extra_blocks": blocks, "kappa_bits": kappa}
        return Arm(name, [measured(0, Figures(), **settings)])

    arms = [baseline("prefix", 4), baseline("ten", blocks=10), baseline("two", blocks=2)]
    arms += [baseline("free", kappa=1.0), baseline("plain"), baseline("again")]
    found = baselines(arms)
    assert [arm.name for arm in found] == ["plain", "two", "ten", "prefix"]
    assert [arm.plain for arm in found] == [True, False, False, False]


@rejects('FAMILY: «tokens", "→»', "arms of other budgets compared")
@rejects('FAMILY: «model", "→»', "arms of other models compared")
def test_only_arms_of_the_same_data_model_tokens_and_parent_are_a_family(tmp_path):
    changes = [{}, {"model": "large"}, {"tokens": 13000}, {"data": "text"}]
    changes += [{"init_from": {"hf": "models/llama"}}, {"init_from": {"run": "base0"}}]
    runs = {
        f"{name}{i}": run(kappa=kappa, **change)
        for i, change in enumerate(changes)
        for name, kappa in (("base", None), ("free", 1.0))
    }
    found = families(arms_of(write_experiment(tmp_path, runs, {})))
    assert [[arm.name for arm in family] for family in found] == [
        [f"base{i}", f"free{i}"] for i in range(6)
    ]


CHILDREN = {
    f"{arm}_s{seed}": run(kappa=kappa, seed=seed, init_from={"run": f"p_s{seed}"})
    for arm, kappa in (("a", None), ("b", 1.0))
    for seed in (0, 1)
}
FROM_PARENTS = {"p_s0": run(), "p_s1": run(seed=1), **CHILDREN}
REPEATED = {"one": run(), "two": run(), "three": run(seed=1)}


@rejects(
    "compare.arms.group_by_seed: «arm→name»", "arms named and grouped by the runs that are there"
)
@rejects(
    "read_run: «spec.experiment.runs→{spec.name: spec.run}»",
    "the arm of a run told from that run alone",
)
@pytest.mark.parametrize(
    ("runs", "unfinished", "expected"),
    [
        (FROM_PARENTS, "", [{"p": [0, 1]}, {"a": [0, 1], "b": [0, 1]}]),
        (FROM_PARENTS, "p_s0 p_s1", [{"a": [0, 1], "b": [0, 1]}]),
        (FROM_PARENTS, "p_s1 a_s0 b_s1", [{"p": [0]}, {"a": [1], "b": [0]}]),
        (REPEATED, "one", [{"one": [1], "two": [0]}]),
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
