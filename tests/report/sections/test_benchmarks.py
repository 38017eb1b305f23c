"""The section on benchmarks: words, the paper's tables beside them, and tables for programs."""

from dataclasses import replace

import pytest

from pipelines.report.markdown import escaped
from pipelines.report.sections.benchmarks import (
    benchmarks,
    beside,
    exceptions,
    monte_carlo,
    paper_cells,
    paper_scores,
)
from tests.support.mutants import rejects
from tests.support.pages import check_report, text_of
from tests.support.results import analysis_of, make_report, run, task, write_experiment, write_suite

ARMS = {
    "base": run("text"),
    "free_k1_2": run("text", kappa=0.5),
    "free_k3": run("text", kappa=3.0),  # the paper's tables have no 3 bits
}
LOSS = {"metric": "bits_per_byte", "higher_is_better": False}
SKIPPED = "its data are not here: `python -m pipelines.fetch` brings them"


def write(folder, tasks, **more):
    write_experiment(folder, {name: ARMS[name] for name in tasks}, {})
    for name, found in tasks.items():
        scoring = {} if name.startswith("free") else {"samples": 1}
        write_suite(folder, name, found, **scoring, **more)
    return folder


def everywhere(**found):
    return {name: found for name in ARMS}


def said(analysis):
    """What report.md says of benchmarks."""
    return text_of(benchmarks, analysis)


def mbpp(value, **changes):
    return task(value, metric="pass@1", **changes)


BUDGETS = {
    "budgets": [
        {"tokens": t, "listed": t, "annealed": t == 6500,
         "tasks": {"mbpp": {"value": v, "se": 0.01}}}
        for t, v in ((2000, 0.1), (5000, 0.2), (6500, 0.3))
    ],
}  # fmt: skip
SIZE = {"documents": 1234, "shots": 3, "version": "2.5"}
SAMPLED = {"truncated": 9, "mc_error": 0.0123, "undecided": 0.25}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report on benchmarks of every kind; tests must not change it."""
    values = {
        "base": (mbpp(0.3, truncated=7, **SIZE), 0.3, task(0.0, 0.0, metric="em"), 2.0),
        "free_k1_2": (mbpp(0.4, **SAMPLED, **SIZE), 0.31, task(0.5, metric="em"), 1.5),
        "free_k3": (mbpp(0.2, truncated=7, **SIZE), 0.29, task(0.0, metric="em"), 2.5),
    }
    pages = {
        name: {"mbpp": first, "race_high": task(second), "sums": third,
               "passages": task(last, 0.01, **LOSS)}
        for name, (first, second, third, last) in values.items()
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("benchmarks")
    return make_report(write(folder, pages, skipped={"race_middle": SKIPPED}, **BUDGETS))


def test_the_papers_figures_are_beside_ours_at_the_same_threshold_and_what_counts_is_bold(made):
    check_report("benchmarks", made)


def test_what_has_to_be_known_is_said(made):
    text = (made / "report.md").read_text()
    for words in (
        "lm_eval 0.4.13 with seed 0",
        "Table 1 of the paper (1.5 B parameters, 47 B tokens)",
        "1,000 parameters, 6,500 tokens",
        "K = 8",
        "mbpp, 7 to 9",
        f"race.middle: {escaped(SKIPPED)}",
    ):
        assert words in text, words


def test_the_papers_tables_are_left_out_where_nothing_is_in_common(tmp_path):
    of_another_kappa = {name: {"mbpp": mbpp(0.3)} for name in ("base", "free_k3")}
    for tasks in (everywhere(facts=task(0.3)), of_another_kappa):
        assert "Table" not in said(analysis_of(write(tmp_path / str(len(tasks)), tasks)))


def test_what_was_scored_in_other_ways_is_said(tmp_path):
    """Metrics, data, shots and what was skipped, each of some runs alone."""
    tasks = {
        "csqa": task(0.3, metric="acc", subtasks={"a": 0.2, "b": 0.4}),
        "race_high": task(0.3, sources=["EleutherAI/race at 8c8dd48"]),
        "piqa": task(0.4, sources=["baber/piqa at 1234"]),
        "mbpp": mbpp(0.3),
    }
    folder = write(tmp_path, everywhere(**tasks), skipped={"boolq": SKIPPED}, limit=50)
    other = {"limit": 50, "skipped": {"boolq": "another reason"}}
    write_suite(folder, "free_k3", tasks | {"mbpp": mbpp(0.3, shots=5)}, **other)
    analysis = analysis_of(folder)
    (family,) = analysis.benchmarks
    paper = beside(family)
    assert [paper_scores(paper, each) is None for each in family.tasks] == [
        True, False, False, False
    ]  # fmt: skip
    assert "mbpp of free_k3" in exceptions(family)[-1]
    assert family.skipped == {
        "boolq": [f"{SKIPPED} (base and free_k1_2)", "another reason (free_k3)"]
    }
    text = said(analysis)
    for words in (
        "csqa (acc here, acc_char there)",
        "50 documents a task (of csqa: of each part)",
        "race.high: EleutherAI/race at 8c8dd48",
        "piqa: baber/piqa at 1234",
    ):
        assert words in text, words
    # nothing of z for baselines alone
    assert "log P(answer | prompt)" not in said(replace(analysis, arms=analysis.arms[:1]))


def test_the_papers_literal_scoring_is_said(tmp_path):
    literal = {"scoring": "posterior_prompt", "samples": 1}
    folder = write_experiment(tmp_path, {"free_k3": ARMS["free_k3"]}, {})
    write_suite(folder, "free_k3", {"mbpp": mbpp(0.3)}, **literal)
    assert "K = 1:" in said(analysis_of(folder))


def test_without_a_baseline_nothing_is_compared(tmp_path):
    tasks = {name: {"mbpp": mbpp(0.3)} for name in list(ARMS)[1:]}
    analysis = analysis_of(write(tmp_path, tasks))
    assert not analysis.benchmarks[0].compared()


@rejects("benchmarks.monte_carlo_cell: «fmean(errors)→errors[0]»", "the error of the first seed")
def test_figures_of_seeds_are_averaged_and_thresholds_rise_as_numbers(tmp_path):
    seeds = [{"mc_error": 0.01, "undecided": 0.5}, {"mc_error": 0.03, "undecided": 0.1}]
    seeds[1]["truncated"] = 12
    free = {f"two_s{seed}": run("text", kappa=2.0, seed=seed) for seed in (0, 1)}
    runs = {"base": run("text"), **free} | {
        name: run("text", kappa=kappa) for name, kappa in (("half", 0.5), ("one", 1.0))
    }
    write_experiment(tmp_path, runs, {})
    for name in runs:
        changes = seeds[runs[name]["seed"]] if name in free else {}
        write_suite(tmp_path, name, {"mbpp": mbpp(0.3, **changes)})
    (family,) = analysis_of(tmp_path).benchmarks
    (errors,) = monte_carlo(family)
    assert dict(zip(errors.head, errors.rows[0], strict=True))["two"] == "± 0.020, 30.0 %"
    assert "0 to 12" in exceptions(family)[0]
    heads = [*paper_cells(family, beside(family), family.tasks[0])]
    assert [head.rpartition(" ")[2] for head in heads] == ["baseline", "1/2", "1", "2"]
