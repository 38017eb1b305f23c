"""Which arms are compared, and with what errors; figures are bits per token."""

from math import nan, sqrt
from statistics import stdev

import pytest

from ftmodel.analysis.differences import Difference, SeedError
from pipelines.compare.comparison import compare, contrast_bounds, over_documents
from pipelines.report.wording import other_error
from tests.support.mutants import rejects
from tests.support.results import PAIR, arms_of, run, seeded, write_experiment


@rejects("comparison.over_documents: «→[:1]»]", "the error over documents of the first seed alone")
def test_the_error_is_of_a_ratio_of_sums_paired_by_document(tmp_path):
    """Closed form for two documents, means over seeds: |d1 t2 − d2 t1| · 2 / (t1 + t2)²."""
    base, free = seeded(tmp_path, PAIR, {"base": [0.5, 0.5], "free": [0.4, 0.4]}).arms
    bits = [99.0, 52.0], [101.0, 48.0], [95.0, 40.0], [85.0, 42.0]
    for one, each in zip((*base.runs, *free.runs), bits, strict=True):
        one.details.bound_bits, one.details.document_tokens = each, [60, 20]
    found = over_documents(free, base, "bits_per_token")
    assert found.error == pytest.approx(abs(-10 * 20 + 9 * 60) * 2 / 80**2)


def test_all_seeds_of_both_arms_count(tmp_path):
    """`free` has one seed, so that the spread of `base` is all that is known of seeds."""
    runs = {"base": run(), "again": run(seed=1), "free": run(kappa=1.0, seed=1)}
    bounds = {"base": 0.5, "again": 0.6, "free": 0.45}
    (found,) = compare(arms_of(write_experiment(tmp_path, runs, bounds)))
    assert found.mean == pytest.approx(-0.1)
    assert found.seeds == pytest.approx(stdev([0.5, 0.6]) * sqrt(1 + 1 / 2))


@rejects(
    "poolable: «if arm in group or other in group→»",
    "spreads over seeds pooled with those of other models and budgets",
)
def test_spreads_are_pooled_over_arms_of_the_same_data_model_and_budget(tmp_path):
    arms = PAIR | {
        "other": run(kappa=2.0), "large": run(kappa=1.0, model="large"),
        "long": run(kappa=1.0, tokens=13_000), "text": run("text", kappa=1.0),
    }  # fmt: skip
    near = {"base": [0.5, 0.52], "free": [0.45, 0.46], "other": [0.40, 0.43]}
    far = {"large": [0.3, 0.31], "long": [0.2, 0.22], "text": [0.2, 0.25]}
    compared = compare(seeded(tmp_path, arms, near | far).arms)
    pooled = sqrt(sum(stdev(each) ** 2 for each in near.values()) / 3)
    assert [c.arm.name for c in compared] == ["free", "other"]
    assert all(c.is_pooled and c.pooled.freedom == 3 for c in compared)
    assert [c.seeds for c in compared] == pytest.approx([pooled, pooled])
    own = [sqrt(stdev(near["base"]) ** 2 / 2 + stdev(near[n]) ** 2 / 2) for n in ("free", "other")]
    assert [c.other_seeds for c in compared] == pytest.approx(own)


@rejects(
    "arms.looseness: «below→0»)", "a bound that another of the same model lies below, called tight"
)
def test_a_verdict_that_a_loose_bound_may_change_is_qualified(tmp_path):
    levels = {"own": 0.7, "same": 0.7, "low": 0.5, "high": 0.9}
    loose = {f"{name}_loose": {"half_variance": 0.3} for name in levels}
    loose["high_above_another"] = {"prior": -0.3}
    loose["high_not_converged"] = {"half_variance": 0.11, "converged": False}
    loose["high_converged"] = {"half_variance": 0.11, "converged": True}
    levels |= {name: levels[name.partition("_")[0]] for name in loose}
    bounds = {name: [level - 0.001, level + 0.001] for name, level in levels.items()}
    runs = {name: run(kappa=1.0) for name in levels}
    others = {f"{name}_s{i}": by for name, by in loose.items() for i in (0, 1)}
    arms = seeded(tmp_path, runs, bounds, others=others).arms
    by_name = {arm.name: arm for arm in arms}
    for arm, other, verdict, tight in (
        ("low", "own_loose", "lower", False),  # the other one's may be 0.2 lower
        ("low_loose", "own", "lower", True),
        ("high_loose", "own", "higher", False),
        ("high_above_another", "own", "higher", False),
        ("high_not_converged", "own", "higher", False),
        ("high_converged", "own", "higher", True),
        ("high", "own_loose", "higher", True),
        ("same_loose", "own", "no difference", False),
        ("same", "own_loose", "no difference", False),
        ("same", "own", "no difference", True),
    ):
        found = contrast_bounds(by_name[arm], by_name[other], "bits_per_token", arms)
        words = verdict if tight else "not decided: the bound is loose"
        assert (found.verdict, found.qualified_verdict) == (verdict, words)
        assert found.worse == (verdict == "higher" and tight)


def test_the_other_error_over_seeds_is_in_words():
    def words(p):
        return other_error(Difference(0.1, None, SeedError(0.02, 2), SeedError(0.01, 8), p, 0.05))

    assert words(nan) == words(0.4) == "± 0.0200 of these two alone"
    assert words(0.0312) == "± 0.0100 pooled; equal spreads are doubted, p = 0.031"
    assert words(0.0002) == "± 0.0100 pooled; equal spreads are doubted, p < 0.001"
