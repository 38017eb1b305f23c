"""What is drawn of z and the target, read back from matplotlib's own objects."""

from dataclasses import replace

import pytest

from pipelines.artifacts.results import Between, ByOffset, LatentDetails
from pipelines.report.sections.target_latent import START_BITS, what_z_says
from pipelines.report.style import styles
from tests.support.mutants import rejects
from tests.support.results import arms_of, run, with_seeds, write_experiment, write_latent

TWO = {"one": run(kappa=1.0), "two": run(kappa=2.0)}


def written(folder, runs):
    """Arms of which z tells 4 bits, and of a seed 1 one more, evenly over 4 positions."""
    write_experiment(folder, runs, {})
    for name in runs:
        write_latent(folder, name, 5.0 if name.endswith("_s1") else 4.0)
    return arms_of(folder)


def draw(arms):
    return what_z_says(arms, styles(arm.name for arm in arms))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two arms, two seeds each."""
    return draw(written(tmp_path_factory.mktemp("latent"), with_seeds(TWO)))


def solid(axes, width):
    return [
        line for line in axes.lines if line.get_linewidth() == width and line.get_linestyle() == "-"
    ]


def lines(axes, width):
    return [list(line.get_ydata()) for line in solid(axes, width)]


def dotted(axes):
    return [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == ":"]


def test_a_thin_line_a_seed_and_a_thick_one_through_their_means(drawn):
    start = drawn.axes[0]
    assert lines(start, 0.7)[:2] == [[1, 2, 3, 4], [1.25, 2.5, 3.75, 5]]
    assert lines(start, 2)[0] == [1.125, 2.25, 3.375, 4.5]
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.texts][:2] == ["one", "two"]
    colours = [line.get_color() for line in solid(start, 2)]
    assert [handle.get_color() for handle in legend.legend_handles][:2] == colours


@rejects(
    "report/sections/target_latent.py",
    "* (t + 1)",
    "* t",
    "free bits of one position too few",
)
def test_free_bits_have_paid_for_at_most_kappa_a_position(drawn):
    start, around, _ = drawn.axes
    assert dotted(start) == [[1, 2, 3, 4], [2, 4, START_BITS, START_BITS]]
    assert [y[0] for y in dotted(around)] == [1.0, 2.0]
    levels = [line.get_ydata()[0] for line in start.lines if line.get_linestyle() == "--"]
    assert levels == [pytest.approx(5.83, abs=0.005)]


@rejects(
    "report/sections/target_latent.py",
    "return design.per == Per.token and",
    "return design.per == Per.token or",
    "κ a position for a hinge of many tokens",
)
def test_free_bits_of_many_tokens_may_all_be_spent_on_the_first(tmp_path):
    designs = {
        "sequence": {"free_bits": "sequence"},
        "batch": {"free_bits": "batch"},
        "every": {"per": "every", "every": 2},
    }
    many = written(tmp_path / "many", {n: run(kappa=1.0, latent=d) for n, d in designs.items()})
    assert dotted(draw(many).axes[0]) == []
    alone = written(tmp_path, {"one": run(kappa=1.0, latent={"free_bits": "position"})})
    assert len(dotted(draw(alone).axes[0])) == 1


def test_what_few_sequences_have_and_what_is_null_is_not_drawn(drawn):
    _, around, unfair = drawn.axes
    line = solid(around, 2)[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([-1, 0], [0.1, 0.4])
    target = around.patches[0]
    assert (target.get_x(), target.get_width()) == (-0.5, 8)
    assert list(solid(unfair, 2)[0].get_xdata()) == [0, 1, 3]


def test_kl_around_the_target_is_that_of_tokens_with_a_z_of_their_own(tmp_path):
    arms = written(tmp_path, TWO)
    details = arms[0].first.details
    details.latent = replace(details.latent, from_start=None)
    _, around, _ = draw(arms).axes
    assert len(lines(around, 2)) == 1 and len(dotted(around)) == 1
    _, around, _ = draw(arms[:1]).axes
    assert not around.get_visible()
    details.latent = LatentDetails([None] * 4, [None] * 4, ByOffset([], [], []))
    # nothing could be measured: levels, and lines of no point
    assert [len(axes.lines) for axes in draw(arms[:1]).axes] == [3, 2, 1]


def test_a_learned_prior_is_neither_fair_bits_nor_paid_for_by_position(tmp_path):
    arms = written(tmp_path, TWO)
    learned = arms[0].first.evaluation
    learned.latent = replace(learned.latent, aggregate_bits=Between(None, 2.0))
    start, _, unfair = draw(arms).axes
    assert len(dotted(start)) == 1 and len(lines(unfair, 2)) == 1
    alone = draw(arms[:1])
    assert not dotted(alone.axes[0]) and not alone.axes[2].get_visible()
    (legend,) = alone.legends
    assert [text.get_text() for text in legend.texts] == ["one"]
