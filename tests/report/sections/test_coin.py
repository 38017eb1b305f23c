"""The figure of the coin shows, of each run, what it has."""

from dataclasses import replace

import pytest

from pipelines.artifacts.results import CoinDetails, CoinSequence
from pipelines.report.sections.coin import LINES, coin_flip

SHOWN = CoinSequence("101", 1, ones=[0, 1, 1], exact=[0.5, 0.7, 0.5], given_side=0.8)
BASELINE = replace(SHOWN, model=[0.5, 0.6, 0.4])
FREE = replace(SHOWN, encoder_z=[[0.8, 0.81, 0.82]] * 2, prior_z=[[0.2, 0.3, 0.4]] * 2)


def curves(axes):
    """Values of each curve but the constant line."""
    return [list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 2]


@pytest.mark.parametrize("columns", [1, 3])
def test_a_row_a_run_and_a_column_a_sequence(columns):
    runs = {"base": BASELINE, "free": FREE}
    figure = coin_flip({name: CoinDetails(0.2, [each] * columns) for name, each in runs.items()})
    assert len(figure.axes) == 2 * columns
    assert curves(figure.axes[0]) == [SHOWN.exact, BASELINE.model]
    assert curves(figure.axes[columns]) == [SHOWN.exact, *FREE.encoder_z, *FREE.prior_z]
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    assert box.y1 < min(axes.get_tightbbox().y0 for axes in figure.axes)
    (alone,) = coin_flip({"base": CoinDetails(0.2, [BASELINE])}).legends
    named = [[text.get_text() for text in each.get_texts()] for each in (alone, *figure.legends)]
    assert named == [list(LINES)[:3], list(LINES)]  # what is drawn
