"""What the figures draw, read back from matplotlib's own objects."""

import json
from math import log
from pathlib import Path

import pytest
from dvc_render.vega import VegaRenderer
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch

from pipelines.artifacts.results import Measured
from pipelines.config.schema import Run
from pipelines.report import plots
from pipelines.report.arms import Arm
from pipelines.report.sections.figure4 import Row, read_paper

ROOT = Path(__file__).parents[2]
BASE = [{"tokens": 1e6 * i, "ce_nats": log(2) / i} for i in (1, 2, 4)]
FREE = [{**row, "kl_bits": 0.5} for row in BASE]


def lines(axes):
    return [(line.get_linestyle(), list(line.get_ydata())) for line in axes.lines]


def test_curve_of_a_baseline_is_its_ce():
    (axes,) = plots.curves({"base": BASE}).axes
    assert lines(axes) == [("-", pytest.approx([1, 0.5, 0.25]))]


def test_curve_of_a_free_transformer_is_ce_plus_kl_and_its_ce_is_dashed():
    bound, kl = plots.curves({"free": FREE}).axes
    assert lines(bound) == [
        ("-", pytest.approx([1.5, 1, 0.75])),
        ("--", pytest.approx([1, 0.5, 0.25])),
    ]
    assert lines(kl) == [("-", [0.5, 0.5, 0.5])]


def test_thresholds_are_dotted_in_the_colour_of_their_run():
    runs = {"base": BASE, "free": FREE, "open": FREE}
    _, kl = plots.curves(runs, kappas={"free": 0.25, "open": 0.0}).axes
    dotted = [line for line in kl.lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [0.25]  # κ = 0 has no place on a log axis
    assert dotted[0].get_color() == kl.lines[0].get_color()


def test_a_run_looks_the_same_in_every_figure():
    style = plots.styles(["base", "free", "other"])
    alone = plots.curves({"other": FREE}, style).axes[0].lines
    together = plots.curves({"base": BASE, "other": FREE}, style).axes[0].lines
    assert alone[0].get_color() == together[1].get_color() == alone[1].get_color()
    assert together[0].get_color() != together[1].get_color()


def test_seeds_of_an_arm_share_a_colour_and_an_entry_in_the_legend():
    runs = {"a_s0": FREE, "a_s1": FREE, "b_s0": FREE}
    figure = plots.curves(runs, arms={"a_s0": "a", "a_s1": "a", "b_s0": "b"})
    first, second, third = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    assert first.get_color() == second.get_color() != third.get_color()
    assert [text.get_text() for text in figure.legends[0].texts][:2] == ["a", "b"]


def test_many_runs_have_a_style_each():
    found = plots.styles(map(str, range(40)))
    assert len({(look["color"], look["marker"]) for look in found.values()}) == 40


@pytest.mark.parametrize("count", [1, 4, 20])
def test_legend_names_every_run_and_stays_off_the_axes(count):
    figure = plots.curves({f"a_rather_long_name_{i}": FREE for i in range(count)})
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(legend.texts) == count + 1
    top = legend.get_window_extent().y1
    assert all(axes.get_tightbbox().y0 > top - 1 for axes in figure.axes)
    assert legend.get_window_extent().x0 >= 0


def test_heat_map_shows_each_bit_of_runs_with_different_h():
    axes = plots.kl_per_bit({"three": [0.1, 0.2, 0.3], "five": [0.5] * 5}).axes[0]
    shown = [(text.get_position(), text.get_text()) for text in axes.texts]
    assert len(shown) == 8
    assert ((2, 0), "0.300") in shown
    assert axes.images[0].get_array().mask.sum() == 2
    assert [label.get_text() for label in axes.get_yticklabels()] == ["three", "five"]


@pytest.fixture(scope="module")
def figure4_of_the_paper():
    paper = read_paper(ROOT / "docs/paper/figure4_samples.txt")
    arms = {
        k: Arm(f"k{k}", [Measured(f"k{k}", Run(kappa_bits=k), 8, "target", {}, {}, [])])
        for k in paper
    }
    rows = [Row(arms[k], panel, [], panel if k != 8 else None) for k, panel in paper.items()]
    return rows, plots.figure4(rows)


def test_figure4_prints_every_character(figure4_of_the_paper):
    rows, figure = figure4_of_the_paper
    printed: dict[tuple[float, float], list[str]] = {}
    for text in figure.axes[0].texts:
        if text.get_fontfamily() == ["DejaVu Sans Mono"]:
            printed.setdefault(text.get_position(), []).append(text.get_text())
    merged = ["".join(max(column) for column in zip(*t, strict=True)) for t in printed.values()]
    panels = [panel for row in rows for panel in (row.ours, row.paper) if panel]
    expected = [s for panel in panels for group in panel.fresh + panel.pinned for s in group]
    assert sorted(merged) == sorted(expected)


def test_figure4_boxes_fresh_groups_in_blue_and_pinned_ones_in_green(figure4_of_the_paper):
    boxes = [p for p in figure4_of_the_paper[1].axes[0].patches if isinstance(p, FancyBboxPatch)]
    edges = [box.get_edgecolor() for box in boxes]
    assert edges == [to_rgba(c) for c in (plots.FRESH, plots.PINNED, plots.PINNED)] * 7


def test_figure4_fits_its_page(figure4_of_the_paper):
    """Every sequence inside its box, nothing off the page, and a size fit for a README."""
    _, figure = figure4_of_the_paper
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    assert (1550 < width < 1650) and height < 2600
    axes = figure.axes[0]
    boxes = [patch.get_window_extent() for patch in axes.patches]
    for text in axes.texts:
        extent = text.get_window_extent()
        assert extent.x0 >= 0 and extent.x1 <= width and extent.y0 >= 0 and extent.y1 <= height
        if text.get_fontfamily() == ["DejaVu Sans Mono"] and text.get_text().strip():
            assert any(box.x0 < extent.x0 and extent.x1 < box.x1 for box in boxes)


def test_dvc_template_draws_a_line_a_run():
    rows = [
        {"run": name, "tokens": "1", "bits_per_token": "2", "rev": "workspace"}
        for name in ("base", "free")
    ]
    template = ROOT / ".dvc/plots/runs.json"
    renderer = VegaRenderer(
        rows, "curves.csv", template=str(template), x="tokens", y="bits_per_token", title="Bound"
    )
    spec = renderer.get_filled_template()
    assert "<DVC_" not in json.dumps(spec)
    assert spec["data"]["values"] == rows
    encoding = spec["encoding"]
    fields = [encoding[channel]["field"] for channel in ("x", "y", "color", "strokeDash")]
    assert fields == ["tokens", "bits_per_token", "run", "rev"]
