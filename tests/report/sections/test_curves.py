"""What the training curves draw, read back from matplotlib's own objects."""

import json
from dataclasses import replace
from math import log

import pytest
from dvc_render.vega import VegaRenderer

from pipelines.artifacts.curve import CurveRow
from pipelines.report.sections.curves import curves
from pipelines.report.style import styles
from tests.support.results import ROOT

BASE = [CurveRow(i, 1_000_000 * i, 1.0, log(2) / i, 0.001, 100.0) for i in (1, 2, 4)]
FREE = [replace(row, kl_bits=0.5, hinge_nats=0.0) for row in BASE]


def lines(axes):
    return [(line.get_linestyle(), list(line.get_ydata())) for line in axes.lines]


def test_curve_is_ce_and_of_a_free_transformer_ce_plus_kl_with_its_ce_dashed():
    ce = [1, 0.5, 0.25]
    (axes,) = curves({"base": BASE}).axes
    assert lines(axes) == [("-", pytest.approx(ce))]
    bound, kl = curves({"free": FREE}).axes
    assert lines(bound) == [("-", pytest.approx([1.5, 1, 0.75])), ("--", pytest.approx(ce))]
    assert lines(kl) == [("-", [0.5, 0.5, 0.5])]


def test_thresholds_are_dotted_in_the_colour_of_their_run():
    runs = {"base": BASE, "free": FREE, "open": FREE}
    _, kl = curves(runs, kappas={"free": 0.25, "open": 0.0}).axes
    dotted = [line for line in kl.lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [0.25]  # κ = 0 has no place on a log axis
    assert dotted[0].get_color() == kl.lines[0].get_color()


def test_a_run_looks_the_same_in_every_figure_and_unlike_any_other():
    style = styles(["base", "free", "other"])
    alone = curves({"other": FREE}, style).axes[0].lines
    together = curves({"base": BASE, "other": FREE}, style).axes[0].lines
    assert alone[0].get_color() == together[1].get_color() == alone[1].get_color()
    assert together[0].get_color() != together[1].get_color()
    seeds = curves({"s0": FREE, "s1": FREE}, arms={"s0": "a", "s1": "a"}).axes[0].lines
    assert seeds[0].get_color() == seeds[2].get_color()
    many = styles(map(str, range(40)))
    assert len({(look["color"], look["marker"]) for look in many.values()}) == 40


def test_legend_names_every_run_and_stays_off_the_axes():
    figure = curves({f"a_rather_long_name_{i}": FREE for i in range(20)})
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(legend.texts) == 20 + 1
    top = legend.get_window_extent().y1
    assert all(axes.get_tightbbox().y0 > top - 1 for axes in figure.axes)


def test_dvc_template_draws_a_line_a_run():
    rows = [
        {"run": name, "tokens": "1", "bits_per_token": "2", "rev": "workspace"}
        for name in ("base", "free")
    ]
    template, axes = str(ROOT / ".dvc/plots/runs.json"), {"x": "tokens", "y": "bits_per_token"}
    spec = VegaRenderer(rows, "curves.csv", template=template, **axes).get_filled_template()
    assert "<DVC_" not in json.dumps(spec)
    assert spec["data"]["values"] == rows
    encoding = spec["encoding"]
    fields = [encoding[channel]["field"] for channel in ("x", "y", "color", "strokeDash")]
    assert fields == ["tokens", "bits_per_token", "run", "rev"]
