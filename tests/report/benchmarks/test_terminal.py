"""Benchmarks as `make repro` prints them."""

from pipelines.report.benchmarks.table import benchmarks
from pipelines.report.benchmarks.terminal import summary_lines
from tests.support.results import arms_of, run, task, write_experiment, write_suite


def test_many_arms_are_folded_to_the_width_of_a_terminal(tmp_path):
    runs = {f"free_with_a_long_name_{i}": run("text", kappa=0.25 * i) for i in range(6)}
    write_experiment(tmp_path, runs, {})
    for name in runs:
        write_suite(tmp_path, name, {"mbpp": task(0.3)})
    lines = summary_lines(benchmarks(arms_of(tmp_path)))
    assert max(map(len, lines)) <= 110
    assert all(sum(line.split().count(name) for line in lines) == 1 for name in runs)
