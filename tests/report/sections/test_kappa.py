"""What the figures of arms draw, read back from matplotlib's own objects."""

from pathlib import Path
from typing import Any

import pytest
from pipelines.report.plots import styles

from pipelines.report.arms import Arm
from pipelines.report.sections import arm_plots
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
            "two": run(kappa=2.0),
        }.items()
        for seed in (0, 1)
    }
    bounds = {"base_s1": 0.6, "zero_s0": 0.4, "zero_s1": 0.5, "two_s0": 0.8, "two_s1": 1.0}
    return arms_of(write_experiment(tmp_path, runs, bounds))


def dots(axes: Any) -> list[tuple[float, ...]]:
    return [tuple(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "None"]


def test_seeds_are_dots_and_lines_go_through_means(family: list[Arm]) -> None:
    left, right = arm_plots.against_kappa(family).axes
    assert dots(right) == [(0.4, 0.5), (0.5, 0.5), (0.8, 1.0)]
    through = [
        line for line in right.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 3
    ]
    assert [list(line.get_ydata()) for line in through] == [pytest.approx([0.45, 0.5, 0.9])]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["0", "1/2", "2"]
    assert dots(left)[3:6] == dots(right)


def test_cross_entropy_is_dashed_and_not_beside_the_bound_alone(family: list[Arm]) -> None:
    left, right = arm_plots.against_kappa(family).axes
    dashed = [list(line.get_ydata()) for line in left.lines if line.get_linestyle() == "--"]
    assert dashed == [[CE] * 3]
    assert not any(CE in line.get_ydata() for line in right.lines)


def test_baselines_are_level_with_a_band_over_their_seeds(family: list[Arm]) -> None:
    _, right = arm_plots.against_kappa(family).axes
    level = [line.get_ydata()[0] for line in right.lines if list(line.get_xdata()) == [0, 1]]
    assert level == pytest.approx([0.55, 0.5])
    bands = [(patch.get_y(), patch.get_height()) for patch in right.patches]
    assert bands == [pytest.approx((0.5, 0.1)), pytest.approx((0.5, 0))]


def test_snapshots_are_hollow_and_apart_from_annealed_models(family: list[Arm]) -> None:
    base = family[:1]
    for one in base[0].runs:
        one.metrics["budgets"] = [
            {"tokens": t, "annealed": t > 3e6, "bits_per_token": {"nll": {"mean": m, "se": 0}}}
            for t, m in ((1e6, 0.9), (2e6, 0.8), (4e6, 0.5))
        ]
    (axes,) = arm_plots.by_budget(base, styles(["base"])).axes
    drawn = [(line.get_markerfacecolor() == "white", list(line.get_ydata())) for line in axes.lines]
    assert drawn == [(True, [0.9, 0.8]), (False, [0.5])] * 2
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]


def test_iwae_is_drawn_above_its_last(family: list[Arm]) -> None:
    free = family[-1:]
    for one in free[0].runs:
        one.metrics["iwae_by_samples"] = {
            k: {"mean": m, "se": 0.1} for k, m in (("16", 1.0), ("2", 1.25), ("1", 1.5))
        }
    (axes,) = arm_plots.by_samples(free, styles(["two"])).axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.5, 0.25, 0.0]] * 2
    assert list(axes.lines[0].get_xdata()) == [1, 2, 16]


def test_a_panel_a_run_with_chance_beside_its_bits(family: list[Arm]) -> None:
    free = family[-2:]
    for arm in free:
        for one in arm.runs:
            one.metrics["label"] = {"per_bit": [0.5, 0.1], "null_95": 0.02, "p_value": 0.001}
    figure = arm_plots.label_in_bits(free)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left").split(":")[0] for axes in shown] == [
        "half_s0", "half_s1", "two_s0", "two_s1"
    ]  # fmt: skip
    assert [bar.get_height() for bar in shown[0].patches] == [0.5, 0.1]
    assert shown[0].lines[0].get_ydata()[0] == 0.02
