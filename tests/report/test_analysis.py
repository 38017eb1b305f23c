"""What a report is made from is computed once."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.report import analysis, budgets, comparison
from pipelines.report.benchmarks import table
from pipelines.report.headline import answers, picture
from pipelines.report.verdicts import findings
from tests.support.mutants import rejects
from tests.support.results import analysis_of, make_report, run, task, write_experiment, write_suite


def count_calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """The arguments of all calls of a function, from now on."""
    calls, original = list[Any](), getattr(module, name)

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(module, name, counted)
    return calls


def test_every_comparison_is_computed_once_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {"base": run("text"), "free": run("text", kappa=0.5), "sums": run(), "z": run(kappa=1.0)}
    write_experiment(tmp_path, runs, {})
    for name in ("base", "free"):
        write_suite(tmp_path, name, {"facts": task(0.3)})
    compared = count_calls(monkeypatch, analysis, "compare")
    on_suites = count_calls(monkeypatch, analysis, "benchmarks")
    tables = count_calls(monkeypatch, analysis, "budget_table")
    bounds = count_calls(monkeypatch, comparison, "contrast_bounds")
    scores = count_calls(monkeypatch, table, "compare_scores")
    make_report(tmp_path)
    assert (len(compared), len(on_suites)) == (1, 1)
    assert len(tables) == 2  # one for each data set
    pairs = [(arm.name, other.name) for arm, other, *_ in bounds]
    assert sorted(pairs) == [("free", "base"), ("z", "sums")]
    assert len(scores) == 1


@rejects(
    "report/analysis.py",
    "@cached_property\n    def comparisons(self)",
    "@property\n    def comparisons(self)",
    "comparisons computed anew for every section",
)
def test_findings_answers_and_counts_share_the_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {})
    compared = count_calls(monkeypatch, analysis, "compare")
    shared = analysis_of(folder)
    assert findings(shared) and answers(shared) and picture(shared) and shared.comparisons_made == 1
    assert len(compared) == 1


def test_budgets_and_benchmarks_use_the_rule_of_the_bounds() -> None:
    assert budgets.contrast is table.contrast is comparison.contrast
