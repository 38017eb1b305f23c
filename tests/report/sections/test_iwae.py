"""What is drawn of the IWAE bound, read back from matplotlib's own objects."""

import pytest

from pipelines.artifacts.results import Estimate
from pipelines.report.sections.iwae import bound_by_samples
from pipelines.report.style import styles
from tests.support.mutants import rejects
from tests.support.results import run, seeded


@rejects(
    "report/sections/iwae.py",
    'filtering = run.figures("bits_per_token").bound.mean',
    "filtering = bounds[samples[-1]].mean",
    "IWAE drawn above its last",
)
def test_iwae_is_drawn_above_the_filtering_bound(tmp_path):
    free = seeded(tmp_path, {"two": run(kappa=2.0)}, {"two": [0.5, 0.5]}).arms
    for measured in free[0].runs:
        measured.evaluation.iwae_by_samples = {
            k: Estimate(mean, 0.1) for k, mean in ((16, 1.0), (2, 1.25), (1, 1.5))
        }
    (axes,) = bound_by_samples(free, styles(["two"])).axes
    assert [list(line.get_ydata()) for line in axes.lines] == [pytest.approx([1.0, 0.75, 0.5])] * 2
    assert list(axes.lines[0].get_xdata()) == [1, 2, 16]
