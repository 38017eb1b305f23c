"""The verdict on the label, by p, and of which runs."""

from types import SimpleNamespace

import pytest

from ftmodel.analysis.permutation import Chance
from pipelines.artifacts.results import LabelFigures
from pipelines.report.sections.label import label_in_bits, label_verdict


def label(p, whole_p=0.9, bits=0.5):
    whole = Chance(0.625, 0.01, 0.02, whole_p)
    chance = {"null_mean": 0.01, "null_95": 0.02, "p_value": p}
    return LabelFigures(value=bits, whole=whole, per_bit=[0.5, 0.1], text=0.875, **chance)


def arm(*labels):
    runs = [
        SimpleNamespace(name=f"free_s{i}", evaluation=SimpleNamespace(label=each))
        for i, each in enumerate(labels)
    ]
    return SimpleNamespace(name="free", runs=runs)


@pytest.mark.parametrize(
    ("labels", "verdict", "p", "bits"),
    [
        ([label(0.9, 0.01)], "1 of 1 runs", "p = 0.02", "0.50"),
        ([label(0.03, 0.04)], "not shown", "p = 0.06", "0.50"),
        ([label(0.8)], "not shown", "p = 1", "0.50"),
        ([label(0.001), label(0.9, 0.002)], "2 of 2 runs", "p ≤ 0.004", "0.50"),
        ([label(0.2), label(0.3)], "not shown", "p ≥ 0.4", "0.50"),
        ([label(0.001, bits=0.75), label(0.2, bits=0.5)], "1 of 2 runs", "p = 0.002", "0.62"),
    ],
)
def test_z_carries_the_label_or_is_not_shown_to(labels, verdict, p, bits):
    assert label_verdict(arm(*labels)) == ["free", verdict, p, bits, "0.62", "0.88"]


def test_a_panel_a_run_with_chance_beside_its_bits():
    figure = label_in_bits([arm(label(0.001), label(0.2))])
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}
    assert list(panels) == ["free_s0: p = 0.001", "free_s1: p = 0.2"]
    first = panels["free_s0: p = 0.001"]
    assert [bar.get_height() for bar in first.patches] == [0.5, 0.1]
    assert first.lines[0].get_ydata()[0] == 0.02
