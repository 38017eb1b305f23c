"""What is drawn of z and the target, read back from matplotlib's own objects."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from pipelines.artifacts.results import Between, ByOffset, LatentDetails
from pipelines.report.sections.target_latent import START_BITS, what_z_says
from pipelines.report.style import styles
from tests.support.mutants import rejects
from tests.support.results import arms_of, run, write_experiment, write_latent


@pytest.fixture
def drawn(tmp_path: Path) -> Figure:
    """Two arms, two seeds each: of the first z tells 4 and 5 bits, evenly over 4 positions."""
    runs = {
        f"{name}_s{seed}": run(kappa=kappa, seed=seed)
        for name, kappa in (("one", 1.0), ("two", 2.0))
        for seed in (0, 1)
    }
    write_experiment(tmp_path, runs, {})
    for name in runs:
        write_latent(tmp_path, name, 4.0 + int(name[-1]))
    arms = arms_of(tmp_path)
    return what_z_says(arms, styles(arm.name for arm in arms))


def lines(axes: Any, width: float) -> list[list[float]]:
    return [
        list(line.get_ydata())
        for line in axes.lines
        if line.get_linewidth() == width and line.get_linestyle() == "-"
    ]


def dotted(axes: Any) -> list[list[float]]:
    return [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == ":"]


def test_a_thin_line_a_seed_and_a_thick_one_through_their_means(drawn: Figure) -> None:
    start = drawn.axes[0]
    assert lines(start, 0.7)[:2] == [[1, 2, 3, 4], [1.25, 2.5, 3.75, 5]]
    assert lines(start, 2)[0] == [1.125, 2.25, 3.375, 4.5]


@rejects(
    "report/sections/target_latent.py",
    "kappa * (t + 1)",
    "kappa * t",
    "free bits of one position too few",
)
def test_free_bits_have_paid_for_at_most_kappa_a_position(drawn: Figure) -> None:
    start, around, _ = drawn.axes
    assert dotted(start) == [[1, 2, 3, 4], [2, 4, START_BITS, START_BITS]]
    assert [y[0] for y in dotted(around)] == [1.0, 2.0]
    levels = [line.get_ydata()[0] for line in start.lines if line.get_linestyle() == "--"]
    assert levels == [pytest.approx(5.83, abs=0.005)]
    assert "5.83 bits" in start.texts[0].get_text()


@rejects(
    "report/sections/target_latent.py",
    "return design.per == Per.token and",
    "return design.per == Per.token or",
    "κ a position for a hinge of many tokens",
)
@pytest.mark.parametrize(
    ("latent", "lines_of_kappa"),
    [
        ({"free_bits": "position"}, 1),
        ({"free_bits": "sequence"}, 0),
        ({"free_bits": "batch"}, 0),
        ({"per": "every", "every": 2}, 0),
    ],
)
def test_free_bits_of_many_tokens_may_all_be_spent_on_the_first(
    tmp_path: Path, latent: dict[str, Any], lines_of_kappa: int
) -> None:
    write_experiment(tmp_path, {"one": run(kappa=1.0, latent=latent)}, {})
    write_latent(tmp_path, "one")
    start = what_z_says(arms_of(tmp_path), styles(["one"])).axes[0]
    assert len(dotted(start)) == lines_of_kappa


def test_offsets_with_few_sequences_are_left_out(drawn: Figure) -> None:
    line = next(line for line in drawn.axes[1].lines if line.get_linewidth() == 2)
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([-1, 0], [0.1, 0.4])
    left = drawn.axes[1].patches[0].get_x()
    assert (left, drawn.axes[1].patches[0].get_width()) == (-0.5, 8)  # the target


def test_what_is_null_is_not_drawn(drawn: Figure) -> None:
    line = next(line for line in drawn.axes[2].lines if line.get_linewidth() == 2)
    assert list(line.get_xdata()) == [0, 1, 3]


def test_arms_are_in_the_legend_with_their_colours(drawn: Figure) -> None:
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.texts][:2] == ["one", "two"]
    thick = [line for line in drawn.axes[0].lines if line.get_linewidth() == 2]
    colours = [line.get_color() for line in thick]
    assert [handle.get_color() for handle in legend.legend_handles][:2] == colours


def test_an_arm_of_which_nothing_could_be_measured_draws_nothing(tmp_path: Path) -> None:
    write_experiment(tmp_path, {"one": run(kappa=1.0)}, {})
    write_latent(tmp_path, "one")
    arms = arms_of(tmp_path)
    nothing = LatentDetails([None] * 4, [None] * 4, ByOffset([], [], []))
    arms[0].first.details.latent = nothing
    figure = what_z_says(arms, styles(["one"]))
    assert [len(axes.lines) for axes in figure.axes] == [3, 2, 1]  # levels, and lines of no point


def test_kl_around_the_target_is_that_of_tokens_with_a_z_of_their_own(tmp_path: Path) -> None:
    write_experiment(tmp_path, {"one": run(kappa=1.0), "two": run(kappa=2.0)}, {})
    for name in ("one", "two"):
        write_latent(tmp_path, name)
    arms = arms_of(tmp_path)
    latent = arms[0].first.details.latent
    assert latent
    arms[0].first.details.latent = replace(latent, from_start=None)
    _, around, _ = what_z_says(arms, styles(["one", "two"])).axes
    assert len(lines(around, 2)) == 1 and len(dotted(around)) == 1
    _, around, _ = what_z_says(arms[:1], styles(["one"])).axes
    assert not around.get_visible()


def test_a_learned_prior_is_neither_fair_bits_nor_paid_for_by_position(tmp_path: Path) -> None:
    runs = {"one": run(kappa=1.0), "two": run(kappa=2.0)}
    write_experiment(tmp_path, runs, {})
    for name in runs:
        write_latent(tmp_path, name)
    arms = arms_of(tmp_path)
    learned = arms[0].first.evaluation.latent
    assert learned
    arms[0].first.evaluation.latent = replace(learned, aggregate_bits=Between(None, 2.0))
    one_of_two = what_z_says(arms, styles(["one", "two"]))
    start, _, unfair = one_of_two.axes
    assert len(dotted(start)) == 1 and len(lines(unfair, 2)) == 1
    alone = what_z_says(arms[:1], styles(["one"]))
    assert not dotted(alone.axes[0]) and not alone.axes[2].get_visible()
    (legend,) = alone.legends
    assert [text.get_text() for text in legend.texts] == ["one"]
