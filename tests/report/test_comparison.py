"""Which arms are compared, and with what errors; figures are bits per token."""

from math import sqrt
from pathlib import Path
from statistics import stdev

import pytest

from pipelines.report.comparison import compare, over_documents
from tests.support.results import arms_of, run, seeded, write_experiment

PAIR = {"base": run(), "free": run(kappa=1.0)}
CONTROLLED = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}


def test_a_difference_is_a_ratio_of_sums_paired_by_document(tmp_path: Path) -> None:
    """Closed form for two documents: the error is |d1 t2 − d2 t1| · 2 / (t1 + t2)²."""
    base, free = seeded(tmp_path, PAIR, {"base": [0.5], "free": [0.4]}).arms
    for arm, bits in ((base, [100.0, 50.0]), (free, [90.0, 41.0])):
        arm.first.details.bound_bits, arm.first.details.document_tokens = bits, [60, 20]
    found = over_documents(free, base, "bits_per_token")
    assert found.error == pytest.approx(abs(-10 * 20 + 9 * 60) * 2 / 80**2)


def test_all_seeds_of_both_arms_count(tmp_path: Path) -> None:
    """`free` has one seed, so that the spread of `base` is all that is known of seeds."""
    runs = {"base": run(), "again": run(seed=1), "free": run(kappa=1.0, seed=1)}
    bounds = {"base": 0.5, "again": 0.6, "free": 0.45}
    (found,) = compare(arms_of(write_experiment(tmp_path, runs, bounds)))
    assert found.mean == pytest.approx(-0.1)
    assert found.seeds == pytest.approx(stdev([0.5, 0.6]) * sqrt(1 + 1 / 2))


def test_what_seeds_do_to_another_arm_does_not_count(tmp_path: Path) -> None:
    """Seeds move arms of large κ much further than others."""
    arms = PAIR | {"other": run(kappa=2.0)}
    bounds = {"base": [0.5, 0.501], "free": [0.48, 0.481], "other": [0.45, 0.65]}
    free, other = compare(seeded(tmp_path, arms, bounds).arms)
    assert (free.verdict, other.verdict) == ("lower", "no difference")
    assert free.seeds == pytest.approx(stdev([0.5, 0.501]))


def test_both_baselines_are_compared_with(tmp_path: Path) -> None:
    bounds = {"base": [0.5], "plus": [0.45], "free": [0.4]}
    arms = seeded(tmp_path, CONTROLLED, bounds).arms
    pairs = [(c.arm.name, c.other.name) for c in compare(arms)]
    assert pairs == [("plus", "base"), ("free", "base"), ("free", "plus")]
