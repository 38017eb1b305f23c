"""Which arms are compared, and with what errors; figures are bits per token."""

from math import sqrt
from statistics import stdev

import pytest

from ftmodel.analysis.differences import DocumentError
from pipelines.compare.comparison import compare, contrast, contrast_bounds, over_documents
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.results import PAIR, run, seeded


@rejects("comparison.over_documents: «→[:1]»]", "the error over documents of the first seed alone")
def test_the_error_is_of_a_ratio_of_sums_paired_by_document(tmp_path):
    """Closed form for two documents, means over seeds: |d1 t2 − d2 t1| · 2 / (t1 + t2)²."""
    base, free = seeded(tmp_path, PAIR, {"base": [0.5, 0.5], "free": [0.4, 0.4]}).arms
    bits = [99.0, 52.0], [101.0, 48.0], [95.0, 40.0], [85.0, 42.0]
    for one, each in zip((*base.runs, *free.runs), bits, strict=True):
        one.details.bound_bits, one.details.document_tokens = each, [60, 20]
    found = over_documents(free, base, "bits_per_token")
    assert found.error == pytest.approx(abs(-10 * 20 + 9 * 60) * 2 / 80**2)


def test_all_seeds_of_both_arms_count():
    """`free` has one seed, so that the spread of `base` is all that is known of seeds."""
    (found,) = compare([baseline("base", 0.5, 0.6), free_transformer("free", 0.45)])
    assert found.mean == pytest.approx(-0.1)
    assert found.seeds == pytest.approx(stdev([0.5, 0.6]) * sqrt(1 + 1 / 2))


@rejects("comparison.poolable: or «other in group→True»", "spreads pooled over other models")
def test_spreads_are_pooled_over_the_families_of_the_two_arms():
    """Variances of 0.02, 0.08 and 0.02, each with one degree of freedom: 0.04 in the mean."""
    own, near = free_transformer("own", 1.0, 1.2), free_transformer("near", 2.0, 2.2, kappa=2.0)
    other = free_transformer("other", 1.0, 1.4, model="large")
    far = [{"model": "third"}, {"tokens": 9000}, {"data": "other"}]
    arms = [own, other, near, *(free_transformer("far", 1.0, 9.0, **each) for each in far)]
    found = contrast_bounds(own, other, "bits_per_token", arms)
    assert found.is_pooled and found.pooled.freedom == 3
    assert (found.seeds, found.other_seeds) == pytest.approx((sqrt(0.04), sqrt(0.05)))


@rejects("arms.looseness: «below→0»)", "a bound that another lies below, called tight")
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
        ("same_loose", "own", "not decided", False),
        ("same", "own_loose", "not decided", False),
        ("same", "own", "not decided", True),
    ):
        found = contrast_bounds(by_name[arm], by_name[other], "bits_per_token", arms)
        words = verdict if tight else "not decided: the bound is loose"
        assert (found.verdict, found.qualified_verdict) == (verdict, words)
        assert found.worse == (verdict == "higher" and tight)


@pytest.mark.parametrize(
    ("mine", "others", "words"),
    [(1, 1, "one seed each"), (2, 1, "2 and 1 seeds"), (1, 3, "1 and 3 seeds")],
)
def test_what_a_difference_is_set_against_is_in_words(mine, others, words):
    documents = DocumentError(0.01, 1)
    arm, other = free_transformer("free", *[1.0] * mine), baseline("base", *[1.2] * others)
    found = contrast(arm, other, "bits_per_token", [1.0] * mine, [1.2] * others, documents)
    assert found.words.startswith("threshold 0.1271, "), "12.706 errors"
    assert found.words.endswith(words)


def test_a_free_transformer_has_all_baselines_for_controls_and_a_baseline_the_plain_one():
    arms = [
        baseline("prefix", 1.2, random_prefix=4),
        baseline("plus", 1.2, extra_blocks=1),
        baseline("large", 1.2, model="large"),
        baseline("base", 1.2),
        free_transformer("free", 1.1),
    ]
    pairs = [(c.arm.name, c.other.name) for c in compare(arms)]
    assert pairs[:2] == [("prefix", "base"), ("plus", "base")]
    assert pairs[2:] == [("free", "base"), ("free", "plus"), ("free", "prefix")]
