"""What a report is made from is computed once."""

from pipelines.compare import budgets, comparison
from pipelines.report import analysis
from pipelines.report.benchmarks import table
from pipelines.report.headline import picture
from pipelines.report.sections.all_sections import all_sections
from pipelines.report.verdicts import findings
from tests.support.mutants import rejects
from tests.support.results import analysis_of, run, task, write_experiment, write_suite


@rejects(
    "@«cached_property→property»\n    def comparisons(self)",
    "comparisons computed anew for every section",
)
def test_every_comparison_is_computed_once_a_report(tmp_path, monkeypatch):
    def calls(module, name):
        """The arguments of all calls of a function, from now on."""
        found, original = [], getattr(module, name)

        def noted(*given, **named):
            found.append(given)
            return original(*given, **named)

        monkeypatch.setattr(module, name, noted)
        return found

    runs = {"base": run("text"), "free": run("text", kappa=0.5), "sums": run(), "z": run(kappa=1.0)}
    write_experiment(tmp_path, runs, {})
    for name in ("base", "free"):
        write_suite(tmp_path, name, {"facts": task(0.3)})
    compared, on_suites = calls(analysis, "compare"), calls(analysis, "benchmarks")
    tables, bounds = calls(analysis, "budget_table"), calls(comparison, "contrast_bounds")
    scores = calls(table, "score_error")
    shared = analysis_of(tmp_path)
    assert findings(shared) and picture(shared) and all_sections(shared)
    assert shared.comparisons_made == 3
    assert (len(compared), len(on_suites), len(scores)) == (1, 1, 1)
    assert len(tables) == 2  # one for each data set
    pairs = [(arm.name, other.name) for arm, other, *_ in bounds]
    assert sorted(pairs) == [("free", "base"), ("z", "sums")]


def test_budgets_and_benchmarks_use_the_rule_of_the_bounds():
    assert budgets.from_plain is table.from_plain is comparison.from_plain
