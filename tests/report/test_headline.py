"""The picture of the first screen, read back from matplotlib's own objects."""

import pytest

from pipelines.report.headline import picture
from tests.support.mutants import rejects
from tests.support.results import CE, PAIR, analysis_of, run, seeded, write_experiment

THREE = {"base": run(), "free_1": run(kappa=1.0), "free_2": run(kappa=2.0)}


def test_without_a_partner_nothing_is_drawn(tmp_path):
    for name, spec in PAIR.items():
        assert picture(analysis_of(write_experiment(tmp_path / name, {name: spec}, {}))) is None


def markers(axes, marker):
    lines = [line for line in axes.lines if line.get_marker() == marker]
    points = [zip(line.get_xdata(), line.get_ydata(), strict=True) for line in lines]
    return [(pytest.approx(x), y) for each in points for x, y in each]


@rejects(
    "comparison.arm, zero, colour, comparison.threshold",
    "comparison.arm, zero, colour, abs(comparison.mean)",
    "bars of the first picture as wide as the difference",
)
def test_means_bars_and_seeds_are_drawn_from_the_baseline_at_0(tmp_path):
    analysis = seeded(tmp_path, PAIR, {"base": [0.5, 0.52], "free": [0.4, 0.46]})
    (comparison,) = analysis.comparisons
    (axes,) = picture(analysis).axes
    assert markers(axes, "D") == [(0, 0), (-0.08, 1)]
    assert markers(axes, "o") == [(-0.01, 0), (0.01, 0), (-0.11, 1), (-0.05, 1)]
    (bar,) = [c.get_segments()[0] for c in axes.collections if len(c.get_segments()) == 1]
    ends = comparison.mean - comparison.threshold, comparison.mean + comparison.threshold
    assert [x for x, _ in bar] == pytest.approx(ends)
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == ["base", "free (κ = 1)"]
    assert "lower is better" in axes.get_xlabel()
    assert [text.get_text() for text in axes.texts] == ["−0.0800  no difference"]


def test_a_panel_for_each_family_with_a_baseline_of_its_bound_alone(tmp_path):
    alone = {"alone": run(kappa=1.0, model="large")}
    text = {"text_base": run("text"), "text_free": run("text", kappa=0.5)}
    folder = write_experiment(tmp_path, PAIR | alone | text, {"free": 0.6})
    target, other = picture(analysis_of(folder)).axes
    assert target.get_title(loc="left").startswith("target_small_6500:")
    assert other.get_title(loc="left").startswith("text:")
    assert "bits per byte" in other.get_xlabel()
    drawn = {x for line in target.lines for x in line.get_xdata()}
    others = [CE, 0.6 + 0.3, 0.6 + 0.2, 0.6 + 3.0]  # reconstruction CE, ELBO, IWAE, prior
    assert not any(x == pytest.approx(other - 0.5) for x in drawn for other in others)


def test_differences_of_unlike_size_are_all_seen(tmp_path):
    """Of 0.001 and 5 bits per token: the axis is logarithmic but around 0, and says so."""
    bounds = {"base": [0.5], "free_1": [0.499], "free_2": [5.5]}
    (axes,) = picture(seeded(tmp_path, THREE, bounds)).axes
    assert axes.get_xscale() == "symlog" and "logarithmic" in axes.get_xlabel()
