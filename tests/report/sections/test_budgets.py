"""What is drawn of budgets, read back from matplotlib's own objects."""

from pipelines.artifacts.results import BudgetFigures, Estimate, Figures
from pipelines.report.sections.budgets import bound_by_budget
from pipelines.report.style import styles
from tests.support.results import run, seeded


def test_snapshots_are_hollow_and_apart_from_annealed_models(tmp_path):
    base = seeded(tmp_path, {"base": run()}, {"base": [0.5, 0.5]}).arms
    for measured in base[0].runs:
        measured.evaluation.budgets = [
            BudgetFigures(tokens, tokens, tokens > 3_000_000, Figures(nll=Estimate(mean, 0.0)))
            for tokens, mean in ((1_000_000, 0.9), (2_000_000, 0.8), (4_000_000, 0.5))
        ]
    (axes,) = bound_by_budget(base, styles(["base"])).axes
    drawn = [(line.get_markerfacecolor() == "white", list(line.get_ydata())) for line in axes.lines]
    assert drawn == [(True, [0.9, 0.8]), (False, [0.5])] * 2
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
