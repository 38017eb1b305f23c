"""Benchmarks on the pages: words, the paper's tables beside them, HTML, Markdown and tables."""

import re

import pytest

from pipelines.report.benchmarks.paper_tables import read_tables
from pipelines.report.benchmarks.table import benchmarks
from pipelines.report.benchmarks.text import benchmark_page, magnitude
from pipelines.report.sections.section import Section
from pipelines.report.wording import markdown, percent
from tests.support.pages import Cells, both_pages, markdown_table, rendered
from tests.support.results import (
    PAPER,
    arms_of,
    make_report,
    rows_by,
    run,
    task,
    with_seeds,
    write_experiment,
    write_suite,
)

ARMS = {
    "base": run("text"),
    "free_k1_2": run("text", kappa=0.5),
    "free_k3": run("text", kappa=3.0),  # the paper's tables have no 3 bits
}
LOSS = {"metric": "bits_per_byte", "higher_is_better": False}
SKIPPED = "its data are not here: `python -m pipelines.fetch` brings them"


def write(folder, tasks, **more):
    """Of ARMS, those that ``tasks`` has."""
    write_experiment(folder, {name: ARMS[name] for name in tasks}, {})
    for name, found in tasks.items():
        scoring = {} if name.startswith("free") else {"samples": 1}
        write_suite(folder, name, found, **scoring, **more)
    return folder


def everywhere(**found):
    """The same tasks for all arms."""
    return {name: found for name in ARMS}


def view_of(arms):
    (view,) = page_of(arms).views
    return view


def page_of(arms):
    return benchmark_page(benchmarks(arms), read_tables(PAPER))


def text_of(arms):
    """What report.md says of benchmarks."""
    return rendered(Section("benchmarks", "Benchmarks", content=page_of(arms)))[1]


def mbpp(value, **changes):
    return task(value, metric="pass@1", **changes)


BUDGETS = {
    "budgets": [
        {"tokens": t, "listed": t, "annealed": t == 6500,
         "tasks": {"mbpp": {"value": v, "se": 0.01}}}
        for t, v in ((2000, 0.1), (5000, 0.2), (6500, 0.3))
    ],
    "last_third": {"n": 2, "tasks": {"mbpp": 0.25}},
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


def test_only_what_counts_is_bold_and_in_colour(made):
    page = (made / "index.html").read_text()
    gains = re.findall(r'class="gain (.*?)">(.*?)<small>(.*?)</small>', page)
    assert gains[:8] == [
        ("counts better", "+33.33 %", "better"),
        ("counts worse", "−33.33 %", "worse"),
        ("none", "+3.33 %", "no difference"),
        ("none", "−3.33 %", "no difference"),
        ("counts better", "–", "better"),
        ("none", "–", "no difference"),
        ("counts better", "−25.00 %", "better"),
        ("counts worse", "+25.00 %", "worse"),
    ]


def test_markdown_says_the_same_beside_the_papers_figures_at_the_same_threshold(made):
    head, *rows = markdown_table(made, "## Benchmarks")
    assert head[1:] == [
        "metric", "shots", "documents", "version", "base", "free_k1_2, κ = 1/2", "free_k3, κ = 3",
        "paper, Table 1: baseline", "paper, Table 1: κ = 1/2",
    ]  # fmt: skip
    found = {name: cells for name, *cells in rows}
    assert found["mbpp"] == [
        "pass@1", "3", "1,234", "2.5", "0.300 ± 0.020", "0.400 ± 0.020; **+33.33 %** better",
        "0.200 ± 0.020; **−33.33 %** worse", "0.112", "0.148; +32.14 %",
    ]  # fmt: skip
    assert found["race.high"][5] == "0.310 ± 0.020; +3.33 % (no difference)"
    assert found["race.high"][7:] == ["0.390", "0.390; +0.00 %"]
    assert found["sums"][5] == "0.500 ± 0.020; **–** better"
    assert found["passages"][0] == "bits_per_byte (lower is better)"
    assert found["passages"][5] == "1.500 ± 0.010; **−25.00 %** better"
    assert found["sums"][7:] == found["passages"][7:] == ["–", "–"]
    cells = Cells((made / "index.html").read_text()).cells
    paper = [text.strip() for kind, text in cells if kind == "paper"]
    assert paper[:4] == ["0.112", "0.148+32.14 %", "0.390", "0.390+0.00 %"]


def test_what_has_to_be_known_is_said(made):
    page, text = both_pages(made)
    for words in (
        "Suite mini, run by lm_eval 0.4.13 with seed 0.",
        "10 comparisons with base were made (2 of them over the last third of training), and 5 "
        "found a difference",
        "1,000 parameters and 6,500 tokens here, 1.5 B parameters and 47 B tokens there: the "
        "paper’s models are 1,500,000 times as large and trained on 7,230,000 times as many",
        "averaged in probability over K = 8 samples",
        "The paper does not state its shots and prompts",
        "mbpp, 7 to 9 requests a run",
        "± 0.012, 25.0 %",
        "another seed may undo it",
        "mean of the last third of training",
    ):
        assert words in page and words in text, words
    assert f"race.middle: {SKIPPED}" in page and f"race.middle: {markdown(SKIPPED)}" in text


def test_the_last_third_is_beside_that_of_table_3(made):
    text = (made / "report.md").read_text()
    table = text[text.index("mean of the last third of training") : text.index(", whole")]
    assert "paper, Table 3: κ = 1/2" in table
    (row,) = [line for line in table.splitlines() if line.startswith("| mbpp | pass@1 |")]
    assert "0.250 ± 0.010; +0.00 % (no difference) |" in row
    assert row.endswith("| 0.396 | 0.421; +6.08 % |")


def test_the_papers_tables_are_there_from_end_to_end(made):
    page = (made / "index.html").read_text()
    titles = re.findall(r"<summary>(.*?), whole</summary>", page)
    names = [f"Table {n} of the paper" for n in (1, 2, 3, 3)]
    assert [title.partition(" (")[0] for title in titles] == names
    assert [title.count("last third") for title in titles] == [0, 0, 0, 1]
    row = "| 0.705 | 0.632; −10.37 % | 0.632; −10.33 % | 0.687; −2.47 % | 0.671; −4.82 % |"
    assert f"| boolq | acc_completion {row}" in (made / "report.md").read_text()


def test_the_figure_and_full_precision_are_beside_the_tables(made):
    assert (made / "figures/benchmarks_text.png").exists()
    assert "](figures/benchmarks_text.png)" in (made / "report.md").read_text()
    for key in ("arm", "run"):
        found = rows_by(key, made / f"{key}s.csv")["free_k1_2"]
        assert (found["suite_passages"], found["suite_passages_se"]) == ("1.5", "0.01")
        assert found.get("suite_mbpp_last_third") == ("0.25" if key == "arm" else None)


def test_the_summary_has_a_benchmark_a_line(made):
    lines = (made / "summary.txt").read_text().splitlines()
    start = lines.index("suite mini on text (small, 6,500 tokens)")
    assert [line.split() for line in lines[start + 1 : start + 7]] == [
        ["base", "free_k1_2", "free_k3"],
        ["mbpp", "pass@1", "0.300", "0.400", ">", "0.200", "<"],
        ["race.high", "acc_char", "0.300", "0.310", "0.290"],
        ["sums", "em", "0.000", "0.500", ">", "0.000"],
        ["passages", "bits_per_byte", "↓", "2.000", "1.500", ">", "2.500", "<"],
        ["skipped:", "race.middle", "(why:", "see", "the", "report)"],
    ]


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        (everywhere(facts=task(0.3)), "none of these is in them."),
        ({name: {"mbpp": mbpp(0.3)} for name in ("base", "free_k3")}, "has a κ of theirs."),
    ],
)
def test_the_papers_tables_are_left_out_where_nothing_is_in_common(tmp_path, tasks, why):
    arms = arms_of(write(tmp_path, tasks))
    assert view_of(arms).beside is None and page_of(arms).paper_tables == []
    assert why in text_of(arms)


def test_another_metric_is_not_set_beside_the_papers(tmp_path):
    arms = arms_of(write(tmp_path, everywhere(csqa=task(0.3, metric="acc"), mbpp=mbpp(0.3))))
    view = view_of(arms)
    csqa, other = (view.beside.scores(each) for each in view.family.tasks)
    assert csqa is None and other is not None
    assert "for another metric: csqa (acc here, acc_char there)." in text_of(arms)


def test_how_far_the_papers_models_are_from_ours(tmp_path):
    arms = arms_of(write(tmp_path, everywhere(mbpp=mbpp(0.3))))
    for parameters, tokens, table, words in (
        (8.03e9, 200e9, "Table 2", "about alike in both. The"),
        (1.5e9, 470e6, "Table 1", "the paper’s models are trained on 100 times as many"),
        (15e6, 47e9, "Table 1", "the paper’s models are 100 times as large. The"),
    ):
        for arm in arms:
            arm.first.evaluation.parameters = int(parameters)
            arm.first.evaluation.trained_tokens = int(tokens)
        assert view_of(arms).beside.table.name == table
        assert f" there: {words}" in text_of(arms)


def test_a_suite_of_which_everything_was_skipped_is_said(tmp_path):
    folder = write(tmp_path, everywhere(), skipped={"race_high": SKIPPED})
    write_suite(folder, "free_k3", {}, skipped={"race_high": "another reason"})
    arms = arms_of(folder)
    assert view_of(arms).skipped == {
        "race.high": f"{SKIPPED} (base and free_k1_2); another reason (free_k3)"
    }
    for text in rendered(Section("benchmarks", "Benchmarks", content=page_of(arms))):
        assert "another reason (free_k3)" in text
        for words in ("put beside these benchmarks", "Beside them", "is compared here"):
            assert words not in text  # nothing of the paper's tables, nor of a baseline


def test_where_data_are_from_and_how_they_differ_is_said(tmp_path):
    notes = "a sample of 500 of 3,498 questions"
    files = "EleutherAI/race from a/b at 8c8dd48, race.jsonl, sha256 d9ac"
    race = task(0.3, notes=[notes], sources=[files], documents=500)
    tasks = everywhere(race_high=race, piqa=task(0.4, sources=["baber/piqa at 1234"]))
    made = make_report(write(tmp_path, tasks))
    for text in both_pages(made):
        assert "differ from the hub’s" in text and "Where the data are from:" in text
        assert f"race.high: {notes}; EleutherAI/race from a/b at 8c8dd48, race.jsonl" in text
        assert "piqa: baber/piqa at 1234" in text
        assert text.count("not as on the hub: see below") == 1
    summary = (made / "summary.txt").read_text()
    assert "\ndata not as on the hub: race.high (how: see the report)\n" in summary


def test_arms_scored_in_another_way_are_named(tmp_path):
    tasks = everywhere(mbpp=task(0.3)) | {"free_k3": {"mbpp": task(0.3, shots=5)}}
    arms = arms_of(write(tmp_path, tasks))
    assert view_of(arms).unlike == ["mbpp of free_k3"]
    assert "task than the others: mbpp of free_k3. `dvc repro`" in text_of(arms)


def test_without_a_baseline_nothing_is_compared(tmp_path):
    arms = arms_of(write(tmp_path, {name: {"mbpp": mbpp(0.3)} for name in list(ARMS)[1:]}))
    assert "Nothing is compared here: no plain baseline" in text_of(arms)
    assert not view_of(arms).family.compared()


def test_with_several_seeds_nothing_is_said_of_another(tmp_path):
    runs = with_seeds({"base": ARMS["base"]}) | {"free_k3": ARMS["free_k3"]}
    write_experiment(tmp_path, runs, {})
    for name in runs:
        write_suite(tmp_path, name, {"mbpp": task(0.3, documents=30)})
    text = text_of(arms_of(tmp_path))
    assert "1 comparison with base was made" in text
    assert "another seed may undo it" not in text


@pytest.mark.parametrize(
    ("limits", "parts", "words"),
    [
        ((None, None, None), {}, "lm_eval 0.4.13 with seed 0. ±"),
        ((50, 100, 50), {}, "seed 0, on at most 100 documents a task. ±"),
        ((50, None, 50), {}, "seed 0, some runs on at most 50 documents a task. ±"),
        ((5, 5, 5), {"a": 0.2, "b": 0.4}, "5 documents a task (of mmlu: of each part). ±"),
    ],
)
def test_the_limit_is_said(tmp_path, limits, parts, words):
    tasks = {"mmlu": task(0.3, subtasks=parts), "piqa": task(0.3)}
    folder = write(tmp_path, everywhere(**tasks))
    for name, limit in zip(ARMS, limits, strict=True):
        write_suite(folder, name, tasks, limit=limit)
    assert words in text_of(arms_of(folder))


def test_scoring_is_that_of_the_free_transformers(tmp_path):
    folder = write(tmp_path, everywhere(mbpp=task(0.3)))
    write_suite(folder, "free_k3", {"mbpp": task(0.3)}, scoring="posterior_prompt", samples=1)
    arms = arms_of(folder)
    assert re.search(
        r"K = 8 samples of z: .*\(marginal\) \(free_k1_2\) and for a single sample of z, K = 1: .* "
        r"literal procedure\) \(free_k3\)\. Rolling",
        text_of(arms),
    )
    assert "log P(answer | prompt)" not in text_of(arms[:1])
    assert "(marginal). Rolling" in text_of(arms[:2])


def test_numbers_in_words():
    assert [magnitude(n) for n in (6500, 1.2e6, 1.5e9, 47e9, 1e12)] == [
        "6,500", "1.2 M", "1.5 B", "47 B", "1 T"
    ]  # fmt: skip
    assert [percent(x) for x in (44.444, -11.93, 0.0)] == ["+44.44 %", "−11.93 %", "+0.00 %"]
