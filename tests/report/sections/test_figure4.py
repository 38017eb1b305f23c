"""Scores of Figure 4 over seeds, and what of a run is shown."""

from math import isnan, nan
from pathlib import Path

import pytest

from ftmodel.synthetic.target_scores import Scores
from pipelines.report.sections.figure4 import (
    Figures,
    figure4_rows,
    figures_of,
    mean_figures,
    our_panel,
    scores_of,
)
from tests.support.results import arms_of, change, run, write_experiment


def scores(valid: float, spread: float, noise: float | None = 0.5) -> dict[str, float | None]:
    return {"valid": valid, "spread": spread, "noise": noise, "groups": 4, "group_size": 8}


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """Two seeds of one arm: pinned spreads 1 of 10 and 8 of 16."""
    runs = {f"free_s{seed}": run(kappa=1.0, seed=seed) for seed in (0, 1)}
    write_experiment(tmp_path, runs, {})
    for name, fresh, pinned in (("free_s0", 10.0, 1.0), ("free_s1", 16.0, 8.0)):
        change(
            tmp_path,
            name,
            "evaluation.json",
            fresh=scores(fresh / 16, fresh),
            pinned=scores(1.0, pinned, 0.25 if pinned == 1 else None),
        )
    return tmp_path


def test_scores_are_means_over_seeds_and_the_ratio_the_mean_of_ratios(seeded: Path) -> None:
    found = our_panel(arms_of(seeded)[0]).figures
    assert found.valid_fresh == pytest.approx((0.625 + 1) / 2)
    assert (found.spread_fresh, found.spread_pinned) == (13.0, 4.5)
    assert found.ratio == pytest.approx((0.1 + 0.5) / 2)  # that of the means would be 0.35


def test_what_a_seed_has_not_is_the_mean_of_the_others(seeded: Path) -> None:
    (row,) = figure4_rows(arms_of(seeded), {})
    assert [isnan(one.noise_pinned) for one in row.seeds] == [False, True]
    assert row.ours.figures.noise_pinned == 0.25


def test_the_panel_says_how_many_seeds_and_which_is_shown(seeded: Path) -> None:
    change(seeded, "free_s1", "details.json", groups={"fresh": [["other"]], "pinned": []})
    panel = our_panel(arms_of(seeded)[0])
    assert panel.summary.endswith("means of 2 seeds; seed 0 shown")
    assert panel.fresh[0][0].startswith("A>")


def test_a_single_seed_is_said_as_it_is(tmp_path: Path) -> None:
    arms = arms_of(write_experiment(tmp_path, {"base": run()}, {}))
    panel = our_panel(arms[0])
    assert panel.summary == "valid 1.00  ·  spread 2.5"
    assert panel.groups == "2 × 8"


def test_an_unmeasured_figure_may_be_null() -> None:
    found = scores_of(scores(0.0, 1.0, None))
    assert found and isnan(found.noise) and scores_of(None) is None


def test_nothing_is_divided_by_a_spread_of_zero() -> None:
    still = Scores(1.0, 0.0, nan, 1, 1)
    assert isnan(figures_of(still, still).ratio)
    nothing = Figures(*[nan] * 7)
    assert all(isnan(value) for value in vars(mean_figures([nothing, nothing])).values())
