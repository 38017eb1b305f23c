"""What a report is made from is computed once; and the table for the terminal."""

from dataclasses import replace
from math import sqrt
from pathlib import Path
from unittest.mock import Mock

import pytest

from ftmodel.designs.hinge import LN2
from ftmodel.synthetic.target import Scores
from pipelines.artifacts.curve import CurveRow
from pipelines.compare import comparison
from pipelines.config.schema import EvaluationConfig
from pipelines.report import analysis, benchmarks
from pipelines.report.blocks import Verdict
from pipelines.report.sections import all_sections
from pipelines.report.tables import arm_row, curve_rows, kl_share, sampling, summary, summary_row
from pipelines.report.verdicts import answer, findings, headline
from pipelines.report.wording import verdict
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.pages import by_name, tables
from tests.support.results import analysis_of, in_folder, run, task, write_experiment, write_suite


@rejects("Analysis.compared: «cached_property→property» def", "comparisons computed anew")
def test_every_comparison_is_computed_once_a_report(tmp_path, monkeypatch):
    def watched(module, name):
        mock = Mock(wraps=getattr(module, name))
        monkeypatch.setattr(module, name, mock)
        return mock

    runs = {"base": run("text"), "free": run("text", kappa=0.5), "sums": run(), "z": run(kappa=1.0)}
    write_experiment(tmp_path, runs, {})
    for name in ("base", "free"):
        write_suite(tmp_path, name, {"facts": task(0.3)})
    once = [watched(analysis, "compare"), watched(analysis, "benchmarks")]
    once.append(watched(benchmarks, "score_error"))
    budgets, bounds = watched(analysis, "budget_table"), watched(comparison, "contrast_bounds")
    shared = analysis_of(tmp_path)
    with in_folder(tmp_path):
        assert headline(shared) and all_sections(shared)
        found = [by_name(benchmarks) for benchmarks in tables(findings(shared))]
    cells = [row.get("benchmarks against the baseline") for rows in found for row in rows.values()]
    assert cells == ["–", "not decided on 1, of 1", None, None]  # where a suite was
    assert len(shared.tested) == 3
    assert [mock.call_count for mock in once] == [1, 1, 1]
    assert budgets.call_count == 2  # one for each data set
    pairs = [(call.args[0].name, call.args[1].name) for call in bounds.call_args_list]
    assert sorted(pairs) == [("free", "base"), ("z", "sums")]


@rejects("Analysis.adjusted_level: «by_all→p» <=", "tests that were not adjusted for their number")
def test_a_star_marks_the_differences_that_survive_that_so_many_were_tested():
    """The faint one has p = 0.036; beside thirty more, which make the spread surer, 0.009."""
    base = baseline("base", 0.50, 0.51, 0.52)
    clear = free_transformer("clear", 0.4, 0.41, 0.42)
    faint = free_transformer("faint", 0.478, 0.488, 0.498)
    same = [free_transformer(f"same_{i}", 0.50, 0.51, 0.52) for i in range(30)]
    for others, stars in (([], ["clear", "faint"]), (same, ["clear"])):
        made = analysis.Analysis([base, clear, faint, *others], EvaluationConfig())
        assert [c.arm.name for c in made.comparisons if c.survives] == stars
        cells = by_name(next(tables(findings(made))))
        assert cells["clear"]["verdict against base"] == "**lower ★**"
        assert cells["faint"]["verdict against base"] == ("**lower**" if others else "**lower ★**")
    made = analysis.Analysis([base, clear, *same], EvaluationConfig(), smallest_effect=0.05)
    assert verdict(made.comparisons[1]) == Verdict("equivalent", True, reason="within 0.05")
    assert "30 of 31 bounds are equivalent to it (within 0.05)" in answer("text", made)


def test_a_heading_links_to_the_first_run_where_mlflow_has_it():
    arm = free_transformer("free", 1.0, 1.1)
    made = analysis.Analysis([arm], EvaluationConfig(), pages={"free_s0": "http://x"})
    assert made.heading(arm, "Words").markdown == "### Words\n\n[free_s0 in MLflow](http://x)"
    assert analysis.Analysis([arm], EvaluationConfig()).heading(arm, "W").markdown == "### W"


def test_the_line_of_an_arm_says_what_its_z_is_worth_unless_kappa_pays_for_nothing():
    """A share of the KL of 0.5; none of a baseline, and −0.1 % is written as 0 %."""
    arms = [free_transformer("free", 1.25), free_transformer("none", 1.25, kappa=0.0)]
    arms += [free_transformer("little", 0.9995), baseline("base", 1.5)]
    uses = analysis.Analysis(arms, EvaluationConfig()).uses
    cells = [summary_row(arm, uses.get(arm.name))["use of z"] for arm in arms]
    assert cells == ["50%", "–", "0% (ignored)", "–"]
    (use,) = analysis.Analysis(arms[:1], EvaluationConfig()).uses.values()
    assert kl_share(replace(use, kl=replace(use.kl, mean=0.0))) == 0.0


def scored(arm, *scores):
    for run_of, valid in zip(arm.runs, scores, strict=True):
        run_of.source = "target"
        run_of.evaluation.fresh = Scores(valid, 8.0, 0.5, 2, 8)
        run_of.evaluation.pinned = Scores(valid, 1.0, 0.375, 2, 8)
    return arm


def test_a_row_has_every_figure_of_an_arm():
    arm = scored(free_transformer("free", 1.0, 1.5, se=0.25), 0.625, 0.625)
    arm.runs[1].evaluation.collapsed = 1
    assert summary_row(arm, None) == {
        "arm": "free (1 of 2 collapsed)", "data": "text", "κ": "1", "seeds": "2: 0.3536",
        "bits/byte": "–", "bits/token": "1.2500 ± 0.2500", "KL bits": "0.5000", "use of z": "–",
        "gap": "–", "valid": "0.62", "pinned": "0.12", "noise": "0.38",
    }  # fmt: skip
    row = arm_row(arm)
    name = "filtering_bits_per_token"
    found = (row[name], row[f"{name}_se"], row[f"{name}_spread"], row["collapsed"])
    assert found == pytest.approx((1.25, 0.25, sqrt(0.125), 1))
    base = baseline("base", 1.0)
    assert "collapsed" not in arm_row(base)
    alone = summary(analysis.Analysis([base], EvaluationConfig()), Path("page"))
    assert alone.splitlines()[1].split() == ["base", "text", "1", "1.0000", "±", "0.0000"]
    arm.first.curve = [CurveRow(1, 9, 1.0, 2 * LN2, 0.001, 1.0)]
    assert curve_rows(arm.runs[:1])[0]["ce_bits_per_token"] == pytest.approx(2)


def test_the_arm_to_sample_is_the_one_with_most_use_and_valid_generations():
    """Of an arm that has no share of valid ones, all count as valid."""
    arms = [scored(free_transformer("used", 1.45), 0.3), free_transformer("text", 1.15)]
    arms.append(scored(free_transformer("valid", 1.2), 1.0))
    for number, best in ((2, "text_s0"), (3, "valid_s0")):
        assert best in sampling(analysis.Analysis(arms[:number], EvaluationConfig()))
