"""What is drawn against κ, read back from matplotlib's own objects."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.report.arms import Arm
from pipelines.report.sections.kappa import figures_against_kappa
from tests.support.mutants import rejects
from tests.support.results import CE, arms_of, run, write_experiment


@pytest.fixture
def family(tmp_path: Path) -> list[Arm]:
    runs = {
        f"{name}_s{seed}": spec | {"seed": seed}
        for name, spec in {
            "base": run(),
            "plus": run(extra_blocks=1),
            "zero": run(kappa=0.0),
            "half": run(kappa=0.5),
            "another_design": run(kappa=0.5, latent={"inject": "residual"}),
            "two": run(kappa=2.0),
        }.items()
        for seed in (0, 1)
    }
    bounds = {"base_s1": 0.6, "zero_s0": 0.4, "zero_s1": 0.5, "two_s0": 0.8, "two_s1": 1.0}
    return arms_of(write_experiment(tmp_path, runs, bounds))


def dots(axes: Any) -> list[tuple[float, ...]]:
    return [tuple(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "None"]


@rejects(
    "report/sections/kappa.py",
    "free = [arm for arm in family if arm.preset_design]",
    "free = [arm for arm in family if not arm.baseline]",
    "a line against κ through other designs",
)
def test_seeds_are_dots_and_lines_go_through_means(family: list[Arm]) -> None:
    left, right = figures_against_kappa(family).axes
    assert dots(right) == [(0.4, 0.5), (0.5, 0.5), (0.8, 1.0)]
    through = [
        line for line in right.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 3
    ]
    assert [list(line.get_ydata()) for line in through] == [pytest.approx([0.45, 0.5, 0.9])]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["0", "1/2", "2"]
    assert dots(left)[3:6] == dots(right)


def test_cross_entropy_is_dashed_and_not_beside_the_bound_alone(family: list[Arm]) -> None:
    left, right = figures_against_kappa(family).axes
    dashed = [list(line.get_ydata()) for line in left.lines if line.get_linestyle() == "--"]
    assert dashed == [[CE] * 3]
    assert not any(CE in line.get_ydata() for line in right.lines)


def test_baselines_are_level_with_a_band_over_their_seeds(family: list[Arm]) -> None:
    _, right = figures_against_kappa(family).axes
    level = [line.get_ydata()[0] for line in right.lines if list(line.get_xdata()) == [0, 1]]
    assert level == pytest.approx([0.55, 0.5])
    bands = [(patch.get_y(), patch.get_height()) for patch in right.patches]
    assert bands == [pytest.approx((0.5, 0.1)), pytest.approx((0.5, 0))]
