"""Figure 4: scores over seeds, the paper's beside them, what is drawn, and figure4.csv."""

from dataclasses import replace
from math import nan

import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch

from ftmodel.synthetic.target import Scores
from pipelines.artifacts.results import Details, EvaluationResult, Figures
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.config.schema import Run
from pipelines.report.sections.figure4 import (
    FRESH,
    PINNED,
    Row,
    draw_figure4,
    figure4_csv,
    figure4_rows,
    mean_scores,
    our_panel,
    read_paper,
    score_rows,
    scores_by_seed,
    target_scores,
)
from tests.support.figures import check_figure
from tests.support.mutants import rejects
from tests.support.pages import check_report, numbers, printed
from tests.support.results import (
    GROUP,
    analysis_of,
    arms_of,
    change,
    make_report,
    run,
    with_seeds,
    write_experiment,
    write_latent,
)


@pytest.fixture
def seeded(tmp_path):
    """Two seeds of one arm: pinned spreads 1 of 10 and 8 of 16."""
    write_experiment(tmp_path, with_seeds({"free": run(kappa=1.0)}), {})
    for name, fresh, pinned in (("free_s0", 10.0, 1.0), ("free_s1", 16.0, 8.0)):
        of = {"groups": 4, "group_size": 8}
        scores = {"fresh": of | {"valid": fresh / 16, "spread": fresh, "noise": 0.5}}
        noise = 0.25 if pinned == 1 else nan
        scores["pinned"] = of | {"valid": 1.0, "spread": pinned, "noise": noise}
        change(tmp_path, name, "evaluation.json", **scores)
    change(tmp_path, "free_s1", "details.json", groups={"fresh": [["other"]], "pinned": []})
    return arms_of(tmp_path)


@rejects("figure4.arm_scores: arm)«→[:1]»)", "scores of the first seed in place of means")
def test_scores_are_means_over_seeds_and_the_ratio_the_mean_of_ratios(seeded):
    (row,) = figure4_rows(seeded, {})
    found = row.ours.scores
    assert found["valid_fresh"] == pytest.approx((0.625 + 1) / 2)
    assert (found["spread_fresh"], found["spread_pinned"]) == (13.0, 4.5)
    assert found["ratio"] == pytest.approx((0.1 + 0.5) / 2)  # that of the means would be 0.35
    assert [seed["noise_pinned"] is None for seed in scores_by_seed(row.arm)] == [False, True]
    assert found["noise_pinned"] == 0.25  # of the seed that has it
    assert numbers(row.ours.summary)[-2:] == ["2", "0"]  # seeds, and the one that is shown
    assert row.ours.fresh == GROUP[:5]
    both, alone = row, replace(row, arm=Arm("free", row.arm.runs[:1]))
    assert printed(line["seed"] for line in score_rows(both)) == ["mean of 2", "0", "1"]
    assert printed(line["seed"] for line in score_rows(alone)) == ["0"]
    assert our_panel(alone.arm).note == ""


def test_baselines_come_first_and_the_paper_is_beside_its_thresholds(tmp_path):
    runs = {"free": run(kappa=1.0), "zero": run(kappa=0.0), "base": run()}
    analysis = analysis_of(write_experiment(tmp_path, runs, {}))
    arms = sorted(analysis.arms, key=lambda arm: [*runs].index(arm.name))
    rows = figure4_rows(arms, read_paper())
    shown = [(row.arm.name, row.ours.groups, row.paper and row.paper.groups) for row in rows]
    paired = "2 + 2 × 8"
    assert shown == [("base", "2 × 8", None), ("zero", paired, None), ("free", paired, "1 + 2 × 5")]
    lines = figure4_csv(analysis)
    assert [line.get("groups") for line in lines] == [2] * 3 + [None] * 4
    assert [line.get("group_size") for line in lines] == [8] * 3 + [None] * 4


def test_nothing_is_divided_by_a_spread_of_zero():
    still = Scores(1.0, 0.0, nan, 1, 1)
    assert target_scores(still, still)["ratio"] is None
    nothing = target_scores(Scores(nan, nan, nan, 1, 1), None)
    assert {*mean_scores([nothing, nothing]).values()} == {None}


def test_paper_has_three_groups_of_five_at_four_thresholds():
    paper = read_paper()
    assert list(paper) == [0.015625, 0.125, 1.0, 8.0]
    for panel in paper.values():
        groups = [panel.fresh, *panel.pinned]
        assert [len(group) for group in groups] == [5, 5, 5]
        assert {len(sequence) for group in groups for sequence in group} == {66}
    assert numbers(paper[0.125].summary) == ["1.00", "14.7", "0.7", "0.05"]
    assert paper[0.125].scores["ratio"] == pytest.approx(0.7 / 14.7, abs=0.01)


def test_figure4_prints_every_character_in_its_box_and_fits_its_page(tmp_path):
    """The paper's panels on both sides, but for one; in a size fit for a README."""
    rows = []
    for kappa, panel in read_paper().items():
        evaluation, details = EvaluationResult(1, 1, 1.0, Figures()), Details([], [], [])
        free = RunResults("free", Run(kappa_bits=kappa), 8, "target", evaluation, details, [])
        rows.append(Row(Arm("free", [free]), panel, panel if kappa != 8 else None))
    check_figure("figure4", draw_figure4(rows[-1:]), tmp_path)
    figure = draw_figure4(rows)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    assert (1550 < width < 1650) and height < 2600
    axes, printed = figure.axes[0], {}
    edges = [p.get_edgecolor() for p in axes.patches if isinstance(p, FancyBboxPatch)]
    assert edges == [to_rgba(c) for c in (FRESH, PINNED, PINNED)] * 7
    boxes = [patch.get_window_extent() for patch in axes.patches]
    for text in axes.texts:
        extent = text.get_window_extent()
        assert extent.x0 >= 0 and extent.x1 <= width and extent.y0 >= 0 and extent.y1 <= height
        if text.get_fontfamily() == ["DejaVu Sans Mono"]:
            printed.setdefault(text.get_position(), []).append(text.get_text())
            if text.get_text().strip():
                assert any(box.x0 < extent.x0 and extent.x1 < box.x1 for box in boxes)
    merged = ["".join(max(column) for column in zip(*t, strict=True)) for t in printed.values()]
    panels = [panel for row in rows for panel in (row.ours, row.paper) if panel]
    expected = [s for panel in panels for group in (panel.fresh, *panel.pinned) for s in group]
    assert sorted(merged) == sorted(expected)


def test_what_is_shown_is_the_mean_of_its_rows(tmp_path):
    """In the page's table, in the figure's line, in the summary, in figure4.csv."""
    write_experiment(tmp_path, with_seeds({"base": run(), "free": run(kappa=0.125)}), {})
    write_latent(tmp_path, "free_s0", prior=0.5)
    write_latent(tmp_path, "free_s1", prior=1.0)
    made = make_report(tmp_path)
    check_report("target", made)
    text = (made / "report.md").read_text()
    assert "valid 0.75  ·  spread 2.5 → 2.5" in text
    assert (made / "figures/latent_target.png").exists()
