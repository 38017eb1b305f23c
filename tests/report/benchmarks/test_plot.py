"""The figure of benchmarks during training, read back from matplotlib's own objects."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.report.benchmarks.plot import during_training, with_budgets
from pipelines.report.benchmarks.table import Benchmarks, benchmarks
from pipelines.report.style import styles
from tests.support.results import arms_of, run, task, write_experiment, write_suite

TASKS = ["mbpp", "race_high", "loss", "mmlu", "piqa"]
VALUES = {1_000_000: 0.1, 2_000_000: 0.2, 4_000_000: 0.5}


def budgets(shift: float) -> list[dict[str, Any]]:
    return [
        {"tokens": t, "listed": t, "annealed": t == 4_000_000,
         "tasks": {key: {"value": v + shift, "se": 0.02} for key in TASKS}}
        for t, v in VALUES.items()
    ]  # fmt: skip


@pytest.fixture
def found(tmp_path: Path) -> Benchmarks:
    arms = {
        "free": run("text", kappa=0.5),
        "plus": run("text", extra_blocks=1),
        "base": run("text"),
    }
    runs = {f"{a}_s{seed}": spec | {"seed": seed} for a, spec in arms.items() for seed in (0, 1)}
    write_experiment(tmp_path, runs, {})
    tasks = {key: task(0.5, higher_is_better=key != "loss") for key in TASKS}
    for name, spec in runs.items():
        more = {"budgets": budgets(0.1 * spec["seed"]), "last_third": {"n": 1, "tasks": {}}}
        write_suite(tmp_path, name, tasks, **({} if name.startswith("plus") else more))
    (made,) = benchmarks(arms_of(tmp_path))
    return made


def test_a_panel_a_benchmark_by_the_papers_name(found: Benchmarks) -> None:
    figure = during_training(found, styles(["free", "plus", "base"]))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in shown]
    assert titles == ["mbpp", "race.high", "loss", "mmlu", "piqa"]
    assert [axes.get_title(loc="right") for axes in shown][1:3] == ["acc_char", "acc_char ↓"]
    assert [tick.get_text() for tick in shown[0].get_xticklabels()] == ["1", "2", "4"]


def test_seeds_are_dots_lines_go_through_means_and_snapshots_are_hollow(found: Benchmarks) -> None:
    style = styles(["free", "plus", "base"])
    axes = during_training(found, style).axes[0]
    free = [line for line in axes.lines if line.get_color() == style["free"]["color"]]
    drawn = [(line.get_linestyle(), line.get_marker(), list(line.get_ydata())) for line in free]
    assert drawn == [
        (":", "None", pytest.approx([0.15, 0.25])),
        ("None", "o", pytest.approx([0.1, 0.2, 0.2, 0.3])),
        ("-", "None", pytest.approx([0.55])),
        ("None", "o", pytest.approx([0.5, 0.6])),
    ]
    assert [line.get_markerfacecolor() == "white" for line in free[1::2]] == [True, False]


def test_the_baseline_stands_out_and_arms_without_budgets_are_left_out(found: Benchmarks) -> None:
    assert [arm.name for arm in with_budgets(found)] == ["free", "base"]
    style = styles(["free", "plus", "base"])
    lines = during_training(found, style).axes[0].lines
    widths = {line.get_color(): (line.get_linewidth(), line.get_zorder()) for line in lines}
    assert widths.keys() == {style[name]["color"] for name in ("free", "base")}
    assert widths[style["base"]["color"]] > widths[style["free"]["color"]]
