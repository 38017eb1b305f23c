"""pass@k in the report: what is set against what, and what the pages show."""

from math import hypot

import pytest

from pipelines.artifacts.suite_results import Sampling, Varied, sampled_key
from pipelines.report.benchmarks import benchmarks, sampled_tasks
from pipelines.report.sections import benchmarks as page
from pipelines.report.tables import run_row
from tests.support.mutants import rejects
from tests.support.pages import text_of
from tests.support.results import analysis_of, arms_of, run, task, write_experiment, write_suite

ARMS = {
    "base": run("text"),
    "plus": run("text", extra_blocks=1),
    "free_k1_2": run("text", kappa=0.5),
}
TOKENS = Sampling(Varied.tokens, 0.8)
Z = Sampling(Varied.z, 0.0)
BOTH = Sampling(Varied.z_and_tokens, 0.8)


def drawn(sampling, one, ten, distinct, samples=10):
    return {
        "sampling": {"varied": sampling.varied.value, "temperature": sampling.temperature},
        "samples": samples,
        "pass_at": {"1": {"value": one, "se": 0.02}, "10": {"value": ten, "se": 0.02}},
        "distinct": {"value": distinct, "se": 0.03},
        "seconds": 1.0,
    }


FREE = [drawn(Z, 0.1, 0.3, 0.6), drawn(TOKENS, 0.2, 0.3, 0.4), drawn(BOTH, 0.21, 0.5, 0.9)]
BASE, PLUS = [drawn(TOKENS, 0.2, 0.4, 0.5)], [drawn(TOKENS, 0.21, 0.5, 0.51)]
SAMPLED = {"base": BASE, "plus": PLUS, "free_k1_2": FREE}


def write(folder, sampled, scores=(), runs=ARMS):
    write_experiment(folder, {name: runs[name] for name in sampled}, {})
    for name, entries in sampled.items():
        tasks = {"sums": task(0.2, metric="em", sampled=entries), "facts": task(0.2)}
        write_suite(folder, name, tasks, dict(scores).get(name))
    return folder


def table(*written, **more):
    (family,) = benchmarks(arms_of(write(*written, **more)))
    (found,) = sampled_tasks(family)  # none of `facts`
    return found


def test_each_way_is_set_against_the_baselines_tokens_at_the_same_temperature(tmp_path):
    found = table(tmp_path, SAMPLED)
    assert (found.task.key, found.samples, found.ks) == ("sums", 10, [1, 10])
    verdicts = [
        (row.arm.name, row.sampling, row.varies, [score.verdict for score in row.pass_at.values()])
        for row in found.rows
    ]
    assert verdicts == [
        ("base", TOKENS, "tokens", ["", ""]),
        ("plus", TOKENS, "tokens", ["not decided", "better"]),
        ("free_k1_2", Z, "z", ["", ""]),
        ("free_k1_2", TOKENS, "tokens", ["not decided", "worse"]),
        ("free_k1_2", BOTH, "z and tokens", ["not decided", "better"]),
    ]
    both = found.rows[-1]
    ten = both.pass_at[10]
    assert ten.relative == pytest.approx(25)
    assert ten.difference.mean == pytest.approx(0.1)
    assert ten.difference.documents == pytest.approx(hypot(0.02, 0.02))
    assert both.distinct.mean == 0.9
    assert len(found.compared) == 6


@rejects(
    "benchmarks.sampled: documents_of(run, sampled_key(«task.key→figure»,",
    "pass@k judged by two samples of prompts",
)
def test_the_error_is_of_differences_prompt_by_prompt_where_these_are_stored(tmp_path):
    wide = [0.0, 1.0] * 50
    near = [value + 0.001 * (i % 4 < 2) for i, value in enumerate(wide)]
    scores = {
        "base": {sampled_key("sums", TOKENS, "pass_at_10"): wide},
        "free_k1_2": {sampled_key("sums", BOTH, "pass_at_10"): near},
    }
    one, ten = table(tmp_path, {"base": BASE, "free_k1_2": FREE}, scores).rows[-1].pass_at.values()
    assert one.difference.documents == pytest.approx(hypot(0.02, 0.02))
    assert ten.difference.documents == pytest.approx(0.0005 / 99**0.5)


@rejects(
    "benchmarks.sampled: «replace(sampling, "
    "varied=Varied.tokens)→sampled_scores(arms[0].first, task)[0].sampling»",
    "pass@k set against the baseline at another temperature",
)
def test_other_temperatures_are_not_compared(tmp_path):
    hot = [drawn(Sampling(Varied.tokens, 1.2), 0.9, 0.9, 0.9)]
    assert table(tmp_path, {"base": hot, "free_k1_2": FREE}).compared == []


def test_a_way_that_some_seed_has_not_is_left_out(tmp_path):
    free = ARMS["free_k1_2"]
    runs = {"base_s0": ARMS["base"], "free_s0": free, "free_s1": free | {"seed": 1}}
    other = [FREE[0], drawn(BOTH, 0.1, 0.2, 0.3, samples=20)]
    found = table(tmp_path, {"base_s0": BASE, "free_s0": FREE, "free_s1": other}, runs=runs)
    rows = [(row.arm.name, row.sampling, len(row.arm.runs)) for row in found.rows]
    assert rows == [("base", TOKENS, 1), ("free", Z, 2)]
    few = drawn(TOKENS, 0.2, 0.4, 0.5, samples=5)
    del few["pass_at"]["10"]
    found = table(tmp_path / "few", {"base": [few], "free_k1_2": FREE})
    assert (found.samples, found.ks) == (5, [1])  # of the first


@rejects("Analysis.tested: for s in «t.compared→[]»", "comparisons of pass@k left out of the count")
def test_these_comparisons_are_counted_and_without_answers_nothing_is_shown(tmp_path):
    without = analysis_of(write(tmp_path / "a", {name: [] for name in ARMS}))
    assert sampled_tasks(without.benchmarks[0]) == []
    found = analysis_of(write(tmp_path / "b", SAMPLED)).tested
    assert len(found) == len(without.tested) + 6


def test_the_page_and_the_table_of_runs_show_them(tmp_path):
    folder = write(tmp_path, SAMPLED)
    for name, entries in SAMPLED.items():
        sampled = task(0.2, metric="em", sampled=entries)
        write_suite(folder, name, {"sums": sampled, "terms": sampled})
    analysis = analysis_of(folder)
    text = text_of(page.benchmarks, analysis)
    assert text.index("pass@k is the probability") < text.index("each prompt of terms")
    at_1 = "0.210 ± 0.020; +5.00 % (not decided, up to 0.066)"
    both = f"{at_1} | 0.500 ± 0.020; +25.00 % (better, one seed)"
    row = f"| free_k1_2, κ = 1/2 | z and tokens | 0.8 | {both} | 0.900 ± 0.030 |"
    assert row in text.partition("10 answers to each prompt of sums")[2]
    (free,) = [run_row(run) for run in analysis.runs if run.name == "free_k1_2"]
    names = ["z_and_tokens_0.8_pass_at_10", "z_and_tokens_0.8_pass_at_10_se", "z_distinct"]
    assert [free[f"suite_sums_{name}"] for name in names] == [0.5, 0.02, 0.6]
