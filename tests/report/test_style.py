"""Colours and markers of runs and arms."""

from pipelines.report.style import styles


def test_many_runs_have_a_style_each():
    found = styles(map(str, range(40)))
    assert len({(look["color"], look["marker"]) for look in found.values()}) == 40
