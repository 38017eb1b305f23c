"""What an arm is, and its means over seeds."""

from pathlib import Path
from statistics import stdev

import pytest

from tests.support.results import arms_of, run, seeded, with_seeds, write_experiment

PAIR = {"base": run(), "free": run(kappa=1.0)}
CONTROLLED = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}


def test_an_arm_is_the_runs_that_differ_only_in_their_seed(tmp_path: Path) -> None:
    arms = arms_of(write_experiment(tmp_path, with_seeds(CONTROLLED, 3), {}))
    assert [(arm.name, arm.seeds) for arm in arms] == [
        ("base", [0, 1, 2]), ("plus", [0, 1, 2]), ("free", [0, 1, 2])
    ]  # fmt: skip
    assert [arm.kind for arm in arms] == ["baseline", "baseline + 1 block", "Free Transformer"]


def test_a_seed_that_is_there_twice_is_no_second_seed(tmp_path: Path) -> None:
    arms = arms_of(
        write_experiment(tmp_path, {"one": run(), "two": run(), "three": run(seed=1)}, {})
    )
    assert [(arm.name, arm.seeds) for arm in arms] == [("one", [0, 1]), ("two", [0])]


def test_arms_whose_names_would_be_the_same_keep_those_of_their_runs(tmp_path: Path) -> None:
    runs = {"free_s0": run(kappa=1.0), "free_s1": run(kappa=2.0, seed=1)}
    assert [arm.name for arm in arms_of(write_experiment(tmp_path, runs, {}))] == list(runs)


def test_mean_and_spread_are_over_seeds_and_errors_do_not_shrink(tmp_path: Path) -> None:
    bounds = {"base": [0.5, 0.53, 0.59], "free": [0.4] * 3}
    base, _ = seeded(tmp_path, PAIR, bounds).arms
    assert base.bound().mean == pytest.approx(0.54)
    assert base.bound().spread == pytest.approx(stdev(bounds["base"]))
    assert base.bound().se == 0.0001  # all seeds are scored on the same documents


def test_seeds_of_another_recipe_are_another_arm(tmp_path: Path) -> None:
    """Not a mean over both, which the same name but for the seed would suggest."""
    runs = {"free_s0": run(kappa=0.5), "free_s1": run(kappa=0.5, kappa_warmup_steps=1, seed=1)}
    arms = arms_of(write_experiment(tmp_path, runs, {}))
    assert [arm.name for arm in arms] == ["free_s0", "free_s1"]
