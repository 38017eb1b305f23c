"""The figure of benchmarks during training, read back from matplotlib's own objects."""

from copy import deepcopy
from dataclasses import replace

import pytest

from pipelines.report.benchmarks import benchmarks
from pipelines.report.sections.benchmarks import during_training
from pipelines.report.style import styles
from tests.support.figures import check_figure
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


def test_the_axis_reaches_the_budgets_of_every_seed(found):
    longer = deepcopy(found)
    of_second = longer.arms[0].runs[1].suite
    of_second.budgets[-1] = replace(of_second.budgets[-1], tokens=8_000_000)
    assert during_training(longer, STYLE).axes[0].get_xlim()[1] > 8_000_000
