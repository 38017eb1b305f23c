"""Which differences count, and what the report says of them; figures are bits per token."""

import re
from math import isnan, nan, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from pipelines.report.arms import Arm
from pipelines.report.comparison import compare, contrast, over_documents, spread_within
from pipelines.report.verdicts import caveat, findings, introduction, trend
from tests.support.results import arms_of, run, write_experiment

VERDICTS = [
    (0.40, "Lower bound than base"),
    (0.481, "No difference measured from base"),  # −0.019; two errors of the pairs are 0.02
    (0.519, "No difference measured from base"),
    (0.53, "Bound above base"),
]


@pytest.mark.parametrize(("bound", "words"), VERDICTS)
def test_verdict_from_bounds_and_errors(tmp_path: Path, bound: float, words: str) -> None:
    runs = {"base": run(), "free": run(kappa=1.0)}
    arms = arms_of(write_experiment(tmp_path, runs, {"free": bound}))
    (sentence,) = findings(arms)["target"]
    assert sentence.startswith(words)
    assert re.search(r"free \([+−]0\.\d{4} ± 0\.0100\)", sentence)
    assert "One seed per arm on target" in caveat(arms)


def test_unknown_errors_make_no_difference(tmp_path: Path) -> None:
    runs = {"base": run(), "free": run(kappa=1.0)}
    arms = arms_of(write_experiment(tmp_path, runs, {"free": 0.1}, se=nan))
    assert findings(arms)["target"][0].startswith("No difference")


def seeded(arms: dict[str, dict[str, Any]], seeds: int = 2) -> dict[str, dict[str, Any]]:
    return {
        f"{a}_s{seed}": spec | {"seed": seed} for a, spec in arms.items() for seed in range(seeds)
    }


def made(
    folder: Path, arms: dict[str, dict[str, Any]], bounds: dict[str, list[float]], **more: Any
) -> list[Arm]:
    """Arms with a bound for each seed; their documents tell all but the same, ± 0.0001."""
    seeds = len(next(iter(bounds.values())))
    given = {f"{arm}_s{seed}": b for arm, found in bounds.items() for seed, b in enumerate(found)}
    return arms_of(write_experiment(folder, seeded(arms, seeds), given, se=0.0001, **more))


PAIR = {"base": run(), "free": run(kappa=1.0)}
CONTROLLED = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}


def test_an_arm_is_the_runs_that_differ_only_in_their_seed(tmp_path: Path) -> None:
    arms = arms_of(write_experiment(tmp_path, seeded(CONTROLLED, 3), {}))
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
    base, _ = made(tmp_path, PAIR, bounds)
    assert base.bound().mean == pytest.approx(0.54)
    assert base.bound().spread == pytest.approx(stdev(bounds["base"]))
    assert base.bound().se == 0.0001  # all seeds are scored on the same documents


def test_a_difference_is_a_ratio_of_sums_paired_by_document(tmp_path: Path) -> None:
    """Closed form for two documents: the error is |d1 t2 − d2 t1| · 2 / (t1 + t2)²."""
    base, free = made(tmp_path, PAIR, {"base": [0.5], "free": [0.4]})
    for arm, bits in ((base, [100.0, 50.0]), (free, [90.0, 41.0])):
        arm.first.details |= {"bound_bits": bits, "document_tokens": [60, 20]}
    found = over_documents(free, base, "bits_per_token")
    assert found.mean == pytest.approx((-10 - 9) / 80)
    assert found.se == pytest.approx(abs(-10 * 20 + 9 * 60) * 2 / 80**2)


def test_all_seeds_of_both_arms_count(tmp_path: Path) -> None:
    """`free` has one seed, so that the spread of `base` is all that is known of seeds."""
    runs = {"base": run(), "again": run(seed=1), "free": run(kappa=1.0, seed=1)}
    bounds = {"base": 0.5, "again": 0.6, "free": 0.45}
    (found,) = compare(arms_of(write_experiment(tmp_path, runs, bounds)))
    assert found.mean == pytest.approx(-0.1)
    assert found.seeds == pytest.approx(stdev([0.5, 0.6]) * sqrt(1 + 1 / 2))


def test_spread_within_samples_knows_no_difference_of_their_means() -> None:
    assert spread_within([[1.0, 2.0, 4.0]]) == (pytest.approx(stdev([1, 2, 4])), 2)
    within = spread_within([[1.0, 2.0], [50.0, 53.0], [7.0]])
    assert within == (pytest.approx(sqrt((0.5 + 4.5) / 2)), 2)
    assert isnan(spread_within([[1.0], [2.0]])[0])


def verdict_of(mine: list[float], others: list[float], documents: float | None = 0.0) -> str:
    arms: Any = None
    return contrast(arms, arms, "", mine, others, documents).verdict


SEEDS = [
    # paired, these differ by 0.0057 ± 0.0003 at every seed; each arm's own spread is 0.1
    ([0.495, 0.594, 0.694], [0.5, 0.6, 0.7], "no difference"),
    # t = 2.776 of 4 degrees of freedom; s = 0.01, so 2.776 · 0.01 · √(2/3) = 0.02267
    ([0.467, 0.477, 0.487], [0.49, 0.50, 0.51], "lower"),
    ([0.468, 0.478, 0.488], [0.49, 0.50, 0.51], "no difference"),
    ([0.513, 0.523, 0.533], [0.49, 0.50, 0.51], "higher"),
    # t = 4.303 of 2; s = 0.00707, so 0.0304: two standard errors would be 0.0141
    ([0.465, 0.475], [0.495, 0.505], "no difference"),
    ([0.464, 0.474], [0.495, 0.505], "lower"),
]


@pytest.mark.parametrize(("mine", "others", "verdict"), SEEDS)
def test_a_difference_that_seeds_may_make_is_none(
    mine: list[float], others: list[float], verdict: str
) -> None:
    assert verdict_of(mine, others) == verdict


def test_a_difference_within_the_spread_of_either_arm_is_none() -> None:
    """With many seeds the test asks for less than the spread."""
    arms: Any = None
    quiet, unquiet = [0.5] * 30, [0.35, 0.45] * 15
    for pair in ((quiet, unquiet), (unquiet, quiet)):
        found = contrast(arms, arms, "", *pair, 0.0)
        assert found.threshold == pytest.approx(stdev(unquiet))
    assert verdict_of(quiet, [0.46, 0.53] * 15) == "no difference"


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_threshold_over_seeds_is_that_of_the_t_test(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    for _ in range(20):
        mine, others = draw.normal(size=seeds).tolist(), draw.normal(1, 2, size=seeds + 1).tolist()
        spread = max(stdev(mine), stdev(others))
        apart = abs(fmean(mine) - fmean(others))
        expected = ttest_ind(mine, others).pvalue < 0.05 and apart > spread
        assert (verdict_of(mine, others) != "no difference") == expected


@pytest.mark.parametrize("seeds", [2, 3])
def test_equal_arms_are_told_apart_in_at_most_one_case_of_twenty(seeds: int) -> None:
    """Documents add no error; 3 000 draws have a sampling error of 0.4 % about 5 %."""
    draws = np.random.default_rng(seeds).normal(size=(3000, 2, seeds)).tolist()
    told = [verdict_of(mine, others) != "no difference" for mine, others in draws]
    assert 0.02 < np.mean(told) < 0.05 + 3 * 0.004


def test_what_seeds_do_to_another_arm_does_not_count(tmp_path: Path) -> None:
    """Seeds move arms of large κ much further than others."""
    arms = PAIR | {"other": run(kappa=2.0)}
    bounds = {"base": [0.5, 0.501], "free": [0.48, 0.481], "other": [0.45, 0.65]}
    free, other = compare(made(tmp_path, arms, bounds))
    assert (free.verdict, other.verdict) == ("lower", "no difference")
    assert free.seeds == pytest.approx(stdev([0.5, 0.501]))


def test_errors_over_documents_count_beside_seeds(tmp_path: Path) -> None:
    apart = ([0.40, 0.41], [0.50, 0.51])
    assert verdict_of(*apart, documents=0.04) == "lower"
    assert verdict_of(*apart, documents=0.06) == "no difference"
    assert verdict_of(*apart, documents=None) == "lower"  # not stored: seeds alone
    assert verdict_of(*apart, documents=nan) == "not known"
    assert verdict_of([0.4], [0.5], documents=0.04) == "lower"  # no seeds: documents alone
    assert verdict_of([0.4], [0.5], documents=None) == "not known"


def test_how_many_comparisons_were_made_is_said(tmp_path: Path) -> None:
    arms = made(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    assert "3 comparisons were made, at 5 % each" in caveat(arms)
    assert "about one comparison in twenty" in caveat(arms)
    assert "comparison" not in caveat(arms[:1])


def test_seeds_are_in_the_words(tmp_path: Path) -> None:
    arms = made(tmp_path, PAIR, {"base": [0.5, 0.52], "free": [0.4, 0.46]})
    assert "6,500 training tokens each, 2 seeds each." in introduction(arms, 16)
    assert "free (−0.0800 ± 0.0001, seeds ± 0.0316)" in findings(arms)["target"][0]
    text = caveat(arms)
    assert "One seed" not in text
    assert "With 2 seeds a spread is a rough estimate" in text


ATTRIBUTIONS = [
    ({"plus": 0.45, "free": 0.40}, "The gain of free is more than one further block gives: plus"),
    ({"plus": 0.45, "free": 0.45}, "The gain of free is one that plus (1,001"),
    ({"plus": 0.40, "free": 0.45}, "The gain of free is one that plus (1,001"),
    ({"plus": 0.50, "free": 0.50}, None),
    ({"plus": 0.45, "free": 0.55}, None),
]


@pytest.mark.parametrize(("bounds", "words"), ATTRIBUTIONS)
def test_a_gain_that_a_further_block_also_gives_is_called_so(
    tmp_path: Path, bounds: dict[str, float], words: str | None
) -> None:
    arms = made(tmp_path, CONTROLLED, {"base": [0.5], **{k: [v] for k, v in bounds.items()}})
    said = [s for s in findings(arms)["target"] if s.startswith("The gain")]
    assert len(said) == (words is not None)
    assert all(s.startswith(words or "") for s in said)


def test_a_gain_not_told_apart_from_that_of_a_further_block_is_open(tmp_path: Path) -> None:
    bounds = {"base": [0.5, 0.5], "plus": [0.492, 0.498], "free": [0.484, 0.488]}
    arms = made(tmp_path, CONTROLLED, bounds)
    assert [c.verdict for c in compare(arms)] == ["no difference", "lower", "no difference"]
    (sentence,) = [s for s in findings(arms)["target"] if s.startswith("The gain")]
    assert sentence.startswith("The gain of free is not told apart from plus")


def test_a_control_of_fewer_parameters_says_nothing_of_parameters(tmp_path: Path) -> None:
    arms = made(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    for parameters, words in (
        (1500, "more than one further block gives: plus (1,500 parameters against 2,000) has"),
        (2000, "more than one further block or as many parameters give: plus (2,000 parameters"),
    ):
        arms[1].first.metrics["parameters"] = parameters
        arms[2].first.metrics["parameters"] = 2000
        (sentence,) = [s for s in findings(arms)["target"] if s.startswith("The gain")]
        assert words in sentence


def test_both_baselines_are_compared_with(tmp_path: Path) -> None:
    arms = made(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    pairs = [(c.arm.name, c.other.name) for c in compare(arms)]
    assert pairs == [("plus", "base"), ("free", "base"), ("free", "plus")]


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (0.55, "and this is what the machinery costs"),
        (0.50, "and no cost of the machinery was measured"),
        (0.45, "and is lower all the same, which z cannot explain"),
    ],
)
def test_kappa_zero_shows_what_the_machinery_costs(
    tmp_path: Path, bound: float, words: str
) -> None:
    arms = made(tmp_path, {"base": run(), "none": run(kappa=0.0)}, {"base": [0.5], "none": [bound]})
    (sentence,) = [s for s in findings(arms)["target"] if "κ = 0" in s]
    assert sentence.startswith("none may carry no information") and sentence.endswith(f"{words}.")


KAPPAS = {"base": run()} | {f"free_{k}": run(kappa=float(k)) for k in (0, 1, 2, 3)}
COLLAPSE = {
    "seen": ([0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1], [0.1, 1, 2, 3]),
    "prior no worse": ([0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1], [5, 2, 1, 1]),
    "prior level": ([0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1], [-0.0002, 0.01, -0.1, -0.1999]),
    "bound fine": ([0.5, 0.49, 0.48, 0.4], [0.5, 0.3, 0.2, 0.1], [0.1, 1, 2, 3]),
    "in between": ([0.5, 0.60, 0.48, 0.4], [0.5, 0.6, 0.2, 0.1], [0.1, 1, 2, 3]),
}


def against_kappa(folder: Path, case: str) -> str:
    bounds, ces, priors = COLLAPSE[case]
    others = {
        f"free_{k}_s0": {"ce": ce, "prior": p}
        for k, ce, p in zip(range(4), ces, priors, strict=True)
    }
    each = {f"free_{k}": [bound] for k, bound in enumerate(bounds)}
    arms = made(folder, KAPPAS, {"base": [0.5], **each}, others=others)
    (sentence,) = [s for s in findings(arms)["target"] if s.startswith("From κ")]
    return sentence


def test_collapse_at_large_kappa_is_read_off_the_figures(tmp_path: Path) -> None:
    seen = against_kappa(tmp_path / "a", "seen")
    assert "reconstruction cross-entropy (no language-model loss) falls, the bound" in seen
    assert "lies above that of base from κ = 2 on" in seen
    assert "the prior-sample bound rises, in the end +3.2000 from base: the collapse of" in seen
    assert seen.endswith(" is seen.")
    assert against_kappa(tmp_path / "b", "prior no worse").endswith("not seen.")
    level = against_kappa(tmp_path / "e", "prior level")
    assert "bound rises" in level and level.endswith("not seen.")
    fine = against_kappa(tmp_path / "c", "bound fine")
    assert "at no κ does the bound lie above that of base" in fine and fine.endswith("not seen.")
    between = against_kappa(tmp_path / "d", "in between")
    assert "above that of base at κ = 1, but not at the largest κ" in between
    assert "falls, though not at every step, the bound" in between


def test_a_prior_sample_bound_that_is_the_tighter_one_is_named(tmp_path: Path) -> None:
    runs = {"base": run(), "free_1": run(kappa=1.0), "free_2": run(kappa=2.0)}
    bounds = {"base": [0.5], "free_1": [0.6], "free_2": [0.7]}
    others = {"free_1_s0": {"prior": 0.01}, "free_2_s0": {"prior": -0.05}}  # above the bound
    arms = made(tmp_path, runs, bounds, others=others)
    (sentence,) = [s for s in findings(arms)["target"] if s.startswith("Prior-sample")]
    assert "free_2 (0.6500 against 0.7000)." in sentence and "free_1" not in sentence


def test_trends() -> None:
    assert trend([3, 2, 1]) == "falls" and trend([1, 1.5, 2]) == "rises"
    assert trend([1, 2, 1.5]) == "rises, though not at every step"
    assert trend([1, 2, 1]) == "ends where it began"


@pytest.mark.parametrize("change", [{"tokens": 13_000}, {"model": "large"}, {"data": "text"}])
def test_unlike_baselines_are_not_compared(tmp_path: Path, change: dict[str, Any]) -> None:
    runs = {"base": run(**change), "free": run(kappa=1.0)}
    arms = arms_of(write_experiment(tmp_path, runs, {}))
    assert compare(arms) == []
    assert findings(arms)["target"] == [
        "No baseline of the same model and token budget to compare with: free."
    ]
