"""The section on benchmarks: words, the paper's tables beside them, and tables for programs."""

from dataclasses import replace

import pytest

from pipelines.report.blocks import escaped
from pipelines.report.sections.benchmarks import (
    benchmarks,
    beside,
    exceptions,
    monte_carlo,
    paper_cells,
    paper_scores,
)
from tests.support.mutants import rejects
from tests.support.pages import by_name, check_report, text_of
from tests.support.results import (
    analysis_of,
    change,
    make_report,
    run,
    task,
    write_experiment,
    write_suite,
)

ARMS = {
    "base": run("text"),
    "free_k1_2": run("text", kappa=0.5),
    "free_k3": run("text", kappa=3.0),  # the paper's tables have no 3 bits
}
LOSS = {"metric": "bits_per_byte", "higher_is_better": False}
SKIPPED = "its data are not here: `ftlab fetch` brings them"


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
def folder(tmp_path_factory):
    """Results on benchmarks of every kind; tests must not change them."""
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
    return write(folder, pages, skipped={"race_middle": SKIPPED}, **BUDGETS)


def test_the_papers_figures_are_beside_ours_at_the_same_threshold_and_what_counts_is_bold(folder):
    check_report("benchmarks", make_report(folder))


def test_what_has_to_be_known_is_said(folder):
    text = said(analysis_of(folder))
    assert "nothing is compared here" not in text
    for words in (
        "lm_eval 0.4.13 with seed 0",
        "Table 1 of the paper (1.5 B parameters, 47 B tokens)",
        "1,000 parameters, 6,500 tokens",
        "is exact for a baseline and, for a Free Transformer, averaged in probability over K = 8",
        "from the prior (marginal). Rolling",
        "mbpp, 7 to 9",
        "| mbpp | pass@1 | 3 | 1,234 | 2.5 | 0.300 ± 0.020 | 0.400 ± 0.020; +33.33 % (better, ",
        "| 0.200 ± 0.020; −33.33 % (worse, one seed) | 0.112 | 0.148; +32.14 % |",
        "bits_per_byte (lower is better)",
        "Table 3 of the paper (8 B parameters, 1 T tokens, mean of the last third)",
        "benchmarks during training",
        f"race.middle: {escaped(SKIPPED)}",
    ):
        assert words in text, words


def test_the_papers_tables_are_left_out_where_nothing_is_in_common(tmp_path):
    of_another_kappa = {name: {"mbpp": mbpp(0.3)} for name in ("base", "free_k3")}
    for tasks, why in (
        (everywhere(facts=task(0.3)), "they lack these benchmarks"),
        (of_another_kappa, "no Free Transformer has one of their κ"),
    ):
        text = said(analysis_of(write(tmp_path / str(len(tasks)), tasks)))
        assert "Table" not in text and f"beside these benchmarks: {why}." in text


def test_what_was_scored_in_other_ways_is_said(tmp_path):
    """Metrics, data, shots and what was skipped, each of some runs alone."""
    tasks = {
        "csqa": task(0.3, metric="acc", subtasks={"a": 0.2, "b": 0.4}),
        "race_high": task(0.3, sources=["EleutherAI/race at 8c8dd48"]),
        "piqa": task(0.4, sources=["baber/piqa at 1234"]),
        "mbpp": mbpp(0.3),
    }
    folder = write(tmp_path, everywhere(**tasks), skipped={"boolq": SKIPPED}, limit=50)
    other = {"limit": 50, "skipped": {"boolq": "another reason"}, "seed": 1}
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
        "with seed 0, on at most 50 documents a task (of csqa: of each part)",
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
    folder = write(tmp_path, tasks)
    change(folder, "free_k3", "evaluation.json", parameters=2000)
    analysis = analysis_of(folder)
    assert not analysis.benchmarks[0].compared
    text = said(analysis)
    assert "nothing is compared here" in text and "Here: 1,002 parameters" in text


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
    assert by_name(errors)["mbpp"]["two"] == "± 0.020, 30.0 %"
    assert "0 to 12" in exceptions(family)[0]
    heads = [*paper_cells(family, beside(family), family.tasks[0])]
    assert [head.rpartition(" ")[2] for head in heads] == ["baseline", "1/2", "1", "2"]
