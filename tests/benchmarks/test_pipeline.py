import pytest

from benchmarks import pipeline
from tests.benchmarks.checks import quick_figures


def test_imports_and_a_stage():
    assert list(quick_figures(pipeline)) == [
        "import of ftmodel beyond torch's",
        "start of stage data",
        "start of stage inputs",
        "start of stage compose",
    ]


@pytest.mark.slow
def test_every_stage_reaches_its_work_and_dvc_has_nothing_to_do():
    figures = pipeline.measure(turns=1, quick=False)
    assert len(figures) == 1 + 8 + 1
    assert figures[-1].name == "dvc repro of quickstart, nothing to do (21 stages)"
