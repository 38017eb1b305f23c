"""pass@k in the report: what is set against what, and what the pages show."""

import csv
import re
from math import hypot
from pathlib import Path
from typing import Any

import pytest

from pipelines.artifacts.suite_results import Sampling, Varied, sampled_key
from pipelines.report.benchmarks.pass_at_k import SampledTask, sampled_tasks
from pipelines.report.benchmarks.table import benchmarks
from tests.support.mutants import rejects
from tests.support.pages import Cells
from tests.support.results import (
    analysis_of,
    arms_of,
    make_report,
    run,
    task,
    write_experiment,
    write_suite,
)

ARMS = {
    "base": run("text"),
    "plus": run("text", extra_blocks=1),
    "free_k1_2": run("text", kappa=0.5),
}
TOKENS = Sampling(Varied.tokens, 0.8)
Z = Sampling(Varied.z, 0.0)
BOTH = Sampling(Varied.z_and_tokens, 0.8)


def drawn(sampling: Sampling, one: float, ten: float, distinct: float, **changes: Any) -> Any:
    """An entry of `sampled` in a suite.json."""
    return {
        "sampling": {"varied": sampling.varied.value, "temperature": sampling.temperature},
        "samples": 10,
        "pass_at": {"1": {"value": one, "se": 0.02}, "10": {"value": ten, "se": 0.02}},
        "distinct": {"value": distinct, "se": 0.03},
        "seconds": 1.0,
    } | changes


SAMPLED = {
    "base": [drawn(TOKENS, 0.2, 0.4, 0.5)],
    "plus": [drawn(TOKENS, 0.21, 0.5, 0.51)],
    "free_k1_2": [drawn(Z, 0.1, 0.3, 0.6), drawn(TOKENS, 0.2, 0.3, 0.4),
                  drawn(BOTH, 0.21, 0.5, 0.9)],
}  # fmt: skip


def write(folder: Path, sampled: dict[str, Any], scores: Any = None) -> Path:
    write_experiment(folder, {name: ARMS[name] for name in sampled}, {})
    for name, entries in sampled.items():
        tasks = {"sums": task(0.2, metric="em", sampled=entries), "facts": task(0.2)}
        write_suite(folder, name, tasks, (scores or {}).get(name))
    return folder


def table(folder: Path) -> SampledTask:
    (family,) = benchmarks(arms_of(folder))
    (found,) = sampled_tasks(family)  # none of `facts`
    return found


def test_each_way_is_set_against_the_baselines_tokens_at_the_same_temperature(tmp_path):
    found = table(write(tmp_path, SAMPLED))
    assert (found.task.key, found.samples, found.ks) == ("sums", 10, [1, 10])
    rows = {(row.arm.name, row.sampling): row for row in found.rows}
    assert [(row.arm.name, row.varies) for row in found.rows] == [
        ("base", "tokens"), ("plus", "tokens"), ("free_k1_2", "z"), ("free_k1_2", "tokens"),
        ("free_k1_2", "z and tokens"),
    ]  # fmt: skip
    verdicts = {key: [score.verdict for score in row.pass_at] for key, row in rows.items()}
    assert verdicts == {
        ("base", TOKENS): ["", ""],
        ("plus", TOKENS): ["no difference", "better"],
        ("free_k1_2", Z): ["", ""],
        ("free_k1_2", TOKENS): ["no difference", "worse"],
        ("free_k1_2", BOTH): ["no difference", "better"],
    }
    ten = rows["free_k1_2", BOTH].pass_at[1]
    assert ten.baseline == 0.4 and ten.relative == pytest.approx(25)
    assert ten.difference.mean == pytest.approx(0.1)
    assert ten.difference.documents == pytest.approx(hypot(0.02, 0.02))
    assert all(row.distinct.verdict == "" for row in found.rows)
    assert rows["free_k1_2", BOTH].distinct.value.mean == 0.9
    assert len(found.compared) == 6


@rejects(
    "report/benchmarks/pass_at_k.py",
    "run.suite_scores.get(sampled_key(task.key, sampling, figure), [])",
    "[]",
    "pass@k judged by the errors of two samples of prompts",
)
def test_the_error_is_of_differences_prompt_by_prompt_where_these_are_stored(tmp_path):
    wide = [0.0, 1.0] * 50
    near = [value + 0.001 * (i % 4 < 2) for i, value in enumerate(wide)]
    scores = {
        "base": {sampled_key("sums", TOKENS, "pass_at_10"): wide},
        "free_k1_2": {sampled_key("sums", BOTH, "pass_at_10"): near},
    }
    sampled = {name: SAMPLED[name] for name in ("base", "free_k1_2")}
    found = table(write(tmp_path, sampled, scores))
    one, ten = found.rows[-1].pass_at
    assert one.difference.documents == pytest.approx(hypot(0.02, 0.02))
    assert ten.difference.documents == pytest.approx(0.0005 / 99**0.5)


@rejects(
    "report/benchmarks/pass_at_k.py",
    "tokens = replace(sampling, varied=Varied.tokens)",
    "tokens = sampled(arms[0].first, task)[0].sampling",
    "pass@k set against the baseline at another temperature",
)
def test_other_temperatures_are_not_compared(tmp_path):
    hot = Sampling(Varied.tokens, 1.2)
    sampled = {"base": [drawn(hot, 0.9, 0.9, 0.9)], "free_k1_2": SAMPLED["free_k1_2"]}
    assert table(write(tmp_path, sampled)).compared == []


@rejects(
    "report/benchmarks/pass_at_k.py",
    "each.sampling == sampling and each.samples == n and",
    "each.sampling == sampling and",
    "means over seeds with unlike numbers of answers",
)
def test_a_way_that_some_seed_has_not_is_left_out(tmp_path):
    sampled = {
        "base_s0": SAMPLED["base"],
        "free_k1_2_s0": SAMPLED["free_k1_2"],
        "free_k1_2_s1": [SAMPLED["free_k1_2"][0], drawn(BOTH, 0.1, 0.2, 0.3, samples=20)],
    }
    arms = {"base_s0": ARMS["base"], "free_k1_2_s0": ARMS["free_k1_2"],
            "free_k1_2_s1": ARMS["free_k1_2"] | {"seed": 1}}  # fmt: skip
    write_experiment(tmp_path, arms, {})
    for name, entries in sampled.items():
        write_suite(tmp_path, name, {"sums": task(0.2, sampled=entries)})
    found = table(tmp_path)
    assert [(row.arm.name, row.sampling) for row in found.rows] == [
        ("base", TOKENS), ("free_k1_2", Z)
    ]  # fmt: skip
    assert len(found.rows[1].arm.runs) == 2


def test_without_it_nothing_is_shown(tmp_path):
    (family,) = benchmarks(arms_of(write(tmp_path, {"base": [], "free_k1_2": []})))
    assert sampled_tasks(family) == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("pass_at_k"), SAMPLED)
    return make_report(folder)


def test_both_pages_show_the_table(made):
    text = (made / "report.md").read_text()
    part = text[text.index("### text: 10 answers to each prompt of sums") :]
    lines = re.findall(r"^\|.*$", part, re.M)[:7]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == [
        "arm", "what varies", "temperature", "pass@1", "pass@10", "distinct answers"
    ]  # fmt: skip
    assert cells[1] == ["---"] * 6
    assert cells[2] == ["base", "tokens", "0.8", "0.200 ± 0.020", "0.400 ± 0.020", "0.500 ± 0.030"]
    assert cells[4][:3] == ["free_k1_2, κ = 1/2", "z", "0"]
    assert cells[6] == [
        "free_k1_2, κ = 1/2", "z and tokens", "0.8", "0.210 ± 0.020; +5.00 % (no difference)",
        "0.500 ± 0.020; **+25.00 %** better", "0.900 ± 0.030",
    ]  # fmt: skip
    page = (made / "index.html").read_text()
    assert "10 answers to each prompt of sums" in page
    texts = [text for _, text in Cells(page).cells]
    assert any("0.500± 0.020+25.00 %better" in text.replace("\n", "") for text in texts)
    for words in (" ".join(each.split()) for each in (text, page)):
        assert "6 comparisons of this kind were made, and 3 found a difference" in words
        assert "Shares of distinct answers are not judged" in words


@rejects(
    "report/analysis.py",
    "scored += sum(len(t.compared)",
    "scored += 0 * sum(len(t.compared)",
    "comparisons of pass@k left out of the count",
)
def test_these_comparisons_are_counted(tmp_path):
    """One of the bounds against each baseline, 2 + 1, and 2 × 2 of the benchmarks."""
    without = analysis_of(write(tmp_path / "a", {name: [] for name in ARMS})).comparisons_made
    assert analysis_of(write(tmp_path / "b", SAMPLED)).comparisons_made == without + 6


def test_the_table_of_runs_has_the_figures(made):
    with open(made / "runs.csv", newline="") as file:
        (free,) = [row for row in csv.DictReader(file) if row["run"] == "free_k1_2"]
    assert free["suite_sums_z_and_tokens_0.8_pass_at_10"] == "0.5"
    assert free["suite_sums_z_and_tokens_0.8_pass_at_10_se"] == "0.02"
    assert free["suite_sums_z_distinct"] == "0.6"
