"""What a report is made from is computed once; and the table for the terminal."""

from unittest.mock import Mock

from pipelines.compare import comparison
from pipelines.config.schema import EvaluationConfig
from pipelines.report import analysis
from pipelines.report.benchmarks import table
from pipelines.report.headline import picture
from pipelines.report.sections import all_sections
from pipelines.report.tables import summary_row
from pipelines.report.verdicts import findings
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.pages import tables
from tests.support.results import analysis_of, in_folder, run, task, write_experiment, write_suite


@rejects("Analysis.comparisons: «cached_property→property» def", "comparisons computed anew")
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
    once.append(watched(table, "score_error"))
    budgets, bounds = watched(analysis, "budget_table"), watched(comparison, "contrast_bounds")
    shared = analysis_of(tmp_path)
    with in_folder(tmp_path):
        assert picture(shared) and all_sections(shared)
        heads = [table.head for table in tables(findings(shared))]
    scored = ["benchmarks against the baseline" in head for head in heads]
    assert scored == [True, False]  # where a suite was
    assert shared.comparisons_made == 3
    assert [mock.call_count for mock in once] == [1, 1, 1]
    assert budgets.call_count == 2  # one for each data set
    pairs = [(call.args[0].name, call.args[1].name) for call in bounds.call_args_list]
    assert sorted(pairs) == [("free", "base"), ("z", "sums")]


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
