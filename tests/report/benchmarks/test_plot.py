"""The figure of benchmarks during training, read back from matplotlib's own objects."""

from copy import deepcopy
from dataclasses import replace

import pytest

from pipelines.report.benchmarks.plot import during_training, with_budgets
from pipelines.report.benchmarks.table import benchmarks
from pipelines.report.style import styles
from tests.support.figures import check_figure
from tests.support.pages import heights
from tests.support.results import arms_of, run, task, with_seeds, write_experiment, write_suite

TASKS = ["mbpp", "race_high", "loss", "mmlu", "piqa"]
STYLE = styles(["free", "plus", "base"])


def budgets(shift):
    return [
        {"tokens": tokens, "listed": tokens, "annealed": tokens == 4_000_000,
         "tasks": {key: {"value": value + shift, "se": 0.02} for key in TASKS}}
        for tokens, value in ((512_000, 0.1), (2_000_000, 0.2), (4_000_000, 0.5))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plot")
    free, plus, base = run("text", kappa=0.5), run("text", extra_blocks=1), run("text")
    runs = with_seeds({"free": free, "plus": plus, "base": base})
    write_experiment(folder, runs, {})
    tasks = {key: task(0.5, higher_is_better=key != "loss") for key in TASKS}
    for name, spec in runs.items():
        more = {"budgets": budgets(0.1 * spec["seed"])}
        write_suite(folder, name, tasks, **({} if name.startswith("plus") else more))
    (made,) = benchmarks(arms_of(folder))
    return made


def test_a_panel_a_benchmark_by_the_papers_name_of_arms_with_budgets(found, tmp_path):
    check_figure("during_training", during_training(found, STYLE), tmp_path)
    assert [arm.name for arm in with_budgets(found)] == ["free", "base"]
    shown = [axes for axes in during_training(found, STYLE).axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in shown]
    assert titles == ["mbpp", "race.high", "loss", "mmlu", "piqa"]
    assert [axes.get_title(loc="right") for axes in shown][1:3] == ["acc_char", "acc_char ↓"]
    assert {line.get_color() for line in shown[0].lines} == {
        STYLE[name]["color"] for name in ("free", "base")
    }


def test_the_axis_reaches_the_budgets_of_every_seed(found):
    longer = deepcopy(found)
    of_second = longer.arms[0].runs[1].suite
    of_second.budgets[-1] = replace(of_second.budgets[-1], tokens=8_000_000)
    assert during_training(longer, STYLE).axes[0].get_xlim()[1] > 8_000_000


def test_seeds_are_dots_lines_go_through_means_and_snapshots_are_hollow(found):
    axes, colour = during_training(found, STYLE).axes[0], STYLE["free"]["color"]
    for look, expected in (
        ({"linestyle": ":", "marker": "None"}, [0.15, 0.25]),
        ({"linestyle": "-", "marker": "None"}, [0.55]),
        ({"marker": "o", "markerfacecolor": "white"}, [0.1, 0.2, 0.2, 0.3]),
        ({"marker": "o", "markerfacecolor": colour}, [0.5, 0.6]),
    ):
        assert heights(axes, color=colour, **look) == [pytest.approx(expected)]
    assert len(heights(axes, color=colour)) == 4
    snapshots = next(line for line in axes.lines if line.get_linestyle() == ":")
    assert list(snapshots.get_xdata()) == [512_000, 2_000_000]
    assert axes.get_xlim() == pytest.approx((0.9 * 512_000, 1.1 * 4_000_000))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.512", "2", "4"]
