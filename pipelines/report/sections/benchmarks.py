"""The benchmarks of a suite, beside the paper's tables."""

from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks.paper_tables import read_tables
from pipelines.report.benchmarks.plot import during_training, with_budgets
from pipelines.report.benchmarks.text import benchmark_page
from pipelines.report.sections.section import Section


def section(analysis: Analysis) -> Section | None:
    if not (page := benchmark_page(analysis.benchmarks, read_tables())):
        return None
    figures = {
        view.figure: (
            during_training(view.family, analysis.style),
            f"Score on each benchmark against tokens on {view.title}",
        )
        for view in page.views
        if view.family.tasks and with_budgets(view.family)
    }
    return Section("benchmarks", "Benchmarks", figures=figures, content=page)
