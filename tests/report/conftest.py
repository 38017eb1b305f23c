"""Two reports that several tests look at: a small one, and one of two seeds an arm."""

import json
from copy import deepcopy

import pytest

from tests.support.results import (
    change,
    make_report,
    run,
    with_seeds,
    write_experiment,
    write_results,
)

RUNS = {
    "base": run(),
    "free_k1_8": run(kappa=0.125),
    "free_wide": run(kappa=0.3, model="large"),  # a κ that the paper has no samples of
    "text_base": run("text"),
    "text_free": run("text", kappa=0.5),
}


@pytest.fixture(scope="package")
def small(tmp_path_factory):
    """The report on RUNS; tests must not change it."""
    bounds = {"free_k1_8": 0.7654321}
    others = {"free_k1_8": {"half_variance": 0.3}, "free_wide": {"ce": 0.4999}}  # loose; ignored
    folder = write_experiment(tmp_path_factory.mktemp("report"), RUNS, bounds, others=others)
    write_results(folder, "left_over", run(), 0.5, 0.01)  # of a run no longer in params.yaml
    change(folder, "text_free", "evaluation.json", collapsed=1)
    return make_report(folder)


SEEDED = with_seeds(
    {
        "base": run("text"),
        "plus": run("text", extra_blocks=1),
        "free_1": run("text", kappa=1.0),
        "free_2": run("text", kappa=2.0, kappa_warmup_steps=3),
    }
)


@pytest.fixture(scope="package")
def seeded(tmp_path_factory):
    """The report on SEEDED, with budgets, a label and IWAE by samples; tests must not change it."""
    folder = tmp_path_factory.mktemp("seeded")
    write_experiment(folder, SEEDED, {"free_1_s0": 0.42, "free_1_s1": 0.48})
    label = {
        "value": 0.5, "per_bit": [0.5, 0, 0], "null_mean": 0.01, "null_95": 0.02,
        "p_value": 0.001, "text": 0.875,
        "whole": {"value": 0.625, "null_mean": 0.03, "null_95": 0.04, "p_value": 0.002},
    }  # fmt: skip
    for name, spec in SEEDED.items():
        metrics = json.loads((folder / "results/tiny" / name / "evaluation.json").read_text())
        units = {unit: metrics[unit] for unit in ("bits_per_token", "bits_per_byte")}
        budgets = [
            {"tokens": tokens, "listed": tokens, "annealed": tokens > 5000, **deepcopy(units)}
            for tokens in (700, 5000, 6500)  # as text the first would be the last
        ]
        for figure in ("nll", "filtering"):  # the mean of the last two is 0.3456, or 0.01 more
            if final := units["bits_per_byte"].get(figure):
                mean = 0.3456 + spec["seed"] / 100
                budgets[1]["bits_per_byte"][figure]["mean"] = 2 * mean - final["mean"]
        more = {"budgets": budgets}
        if "free" in name:
            more["iwae_by_samples"] = {k: {"mean": 1 / int(k), "se": 0.1} for k in ("1", "4")}
            more["label"] = label
        change(folder, name, "evaluation.json", **more)
    return make_report(folder)


@pytest.fixture(scope="package")
def bare(tmp_path_factory):
    """The report on a baseline on text that has kept no generations; tests must not change it."""
    folder = write_experiment(tmp_path_factory.mktemp("bare"), {"base": run("text")}, {})
    change(folder, "base", "details.json", generations=[])
    return make_report(folder)
