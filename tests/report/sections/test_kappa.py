"""What is drawn against κ, read back from matplotlib's own objects."""

import pytest

from pipelines.report.sections.kappa import figures_against_kappa
from tests.support.mutants import rejects
from tests.support.results import CE, run, seeded


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    arms = {
        "base": run(),
        "plus": run(extra_blocks=1),
        "zero": run(kappa=0.0),
        "half": run(kappa=0.5),
        "another_design": run(kappa=0.5, latent={"inject": "residual"}),
        "two": run(kappa=2.0),
    }
    bounds = {name: [0.5, 0.5] for name in arms}
    bounds |= {"base": [0.5, 0.6], "zero": [0.4, 0.5], "two": [0.8, 1.0]}
    return figures_against_kappa(seeded(tmp_path_factory.mktemp("kappa"), arms, bounds).arms)


def dots(axes):
    return [tuple(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "None"]


@rejects(
    "report/sections/kappa.py",
    "free = [arm for arm in family if arm.preset_design]",
    "free = [arm for arm in family if not arm.baseline]",
    "a line against κ through other designs",
)
def test_seeds_are_dots_and_lines_go_through_means(drawn):
    left, right = drawn.axes
    assert dots(right) == [(0.4, 0.5), (0.5, 0.5), (0.8, 1.0)]
    solid = [line for line in right.lines if line.get_linestyle() == "-"]
    through = [list(line.get_ydata()) for line in solid if len(line.get_xdata()) == 3]
    assert through == [pytest.approx([0.45, 0.5, 0.9])]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["0", "1/2", "2"]
    assert dots(left)[3:6] == dots(right)


def test_cross_entropy_is_dashed_and_not_beside_the_bound_alone(drawn):
    left, right = drawn.axes
    dashed = [list(line.get_ydata()) for line in left.lines if line.get_linestyle() == "--"]
    assert dashed == [[CE] * 3]
    assert not any(CE in line.get_ydata() for line in right.lines)


def test_baselines_are_level_with_a_band_over_their_seeds(drawn):
    _, right = drawn.axes
    level = [line.get_ydata()[0] for line in right.lines if list(line.get_xdata()) == [0, 1]]
    assert level == pytest.approx([0.55, 0.5])
    bands = [(patch.get_y(), patch.get_height()) for patch in right.patches]
    assert bands == [pytest.approx((0.5, 0.1)), pytest.approx((0.5, 0))]
