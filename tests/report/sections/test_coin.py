"""The figure of the coin shows, of each run, what it has."""

from dataclasses import replace

import pytest

from pipelines.artifacts.results import CoinDetails, CoinSequence
from pipelines.report.sections.coin import LINES, coin_flip

SHOWN = CoinSequence("101", 1, ones=[0, 1, 1], exact=[0.5, 0.7, 0.5], given_side=0.8)
BASELINE = replace(SHOWN, model=[0.5, 0.6, 0.4])
FREE = replace(SHOWN, encoder_z=[[0.8, 0.81, 0.82]] * 2, prior_z=[[0.2, 0.3, 0.4]] * 2)


def coin(sequence, columns=2):
    return CoinDetails(0.2, [sequence] * columns)


def curves(axes):
    """Colour and values of each curve but the constant line."""
    drawn = [line for line in axes.lines if len(line.get_xdata()) > 2]
    return [(line.get_color(), list(line.get_ydata())) for line in drawn]


def test_a_row_a_run_and_a_column_a_sequence():
    figure = coin_flip({"base": coin(BASELINE), "free": coin(FREE)})
    assert len(figure.axes) == 4
    without, given = figure.axes[0], figure.axes[2]
    assert [values for _, values in curves(without)] == [SHOWN.exact, BASELINE.model]
    assert [values for _, values in curves(given)] == [
        SHOWN.exact,
        *FREE.encoder_z,
        *FREE.prior_z,
    ]
    assert {colour for colour, _ in curves(given)} <= {look["color"] for look in LINES.values()}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(LINES)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_legend_fits(columns):
    figure = coin_flip({"b": coin(BASELINE, columns), "f": coin(FREE, columns)})
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    assert box.y1 < min(axes.get_tightbbox().y0 for axes in figure.axes)


def test_the_legend_names_only_what_is_drawn():
    (legend,) = coin_flip({"base": coin(BASELINE)}).legends
    assert [text.get_text() for text in legend.get_texts()] == list(LINES)[:3]
