"""What a report is made from is computed once."""

from unittest.mock import Mock

from pipelines.compare import comparison
from pipelines.report import analysis
from pipelines.report.benchmarks import table
from pipelines.report.headline import picture
from pipelines.report.sections import all_sections
from pipelines.report.verdicts import findings
from tests.support.mutants import rejects
from tests.support.results import analysis_of, in_folder, run, task, write_experiment, write_suite


@rejects(
    "Analysis.comparisons: «cached_property→property» def comparisons", "comparisons computed anew"
)
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
    tables, bounds = watched(analysis, "budget_table"), watched(comparison, "contrast_bounds")
    shared = analysis_of(tmp_path)
    with in_folder(tmp_path):
        assert findings(shared) and picture(shared) and all_sections(shared)
    assert shared.comparisons_made == 3
    assert [mock.call_count for mock in once] == [1, 1, 1]
    assert tables.call_count == 2  # one for each data set
    pairs = [(call.args[0].name, call.args[1].name) for call in bounds.call_args_list]
    assert sorted(pairs) == [("free", "base"), ("z", "sums")]
