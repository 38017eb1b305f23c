"""Benchmarks on the pages: words, the paper's tables beside them, HTML, Markdown and tables."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.report.arms import Arm
from pipelines.report.benchmarks.paper_tables import read_tables
from pipelines.report.benchmarks.table import benchmarks
from pipelines.report.benchmarks.text import BenchmarkPage, View, benchmark_page, magnitude
from pipelines.report.page import templates
from pipelines.report.sections.section import Section
from pipelines.report.wording import markdown, percent
from tests.support.mutants import rejects
from tests.support.pages import Cells
from tests.support.results import (
    PAPER,
    arms_of,
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
SKIPPED = "its data are not here: `python -m pipelines.fetch` brings them"
Tasks = dict[str, dict[str, Any]]


def write(folder: Path, tasks: dict[str, Tasks], **more: Any) -> Path:
    """Of ARMS, those that ``tasks`` has; the first has last thirds of its own."""
    write_experiment(folder, {name: ARMS[name] for name in tasks}, {})
    for name, found in tasks.items():
        scoring = {} if ARMS[name]["kappa_bits"] is not None else {"samples": 1}
        write_suite(folder, name, found, **scoring, **more)
    return folder


def all_alike(found: Tasks) -> dict[str, Tasks]:
    return {name: found for name in ARMS}


def page_of(arms: list[Arm]) -> BenchmarkPage:
    page = benchmark_page(benchmarks(arms), read_tables(PAPER))
    assert page is not None
    return page


def view_of(folder: Path) -> View:
    (view,) = page_of(arms_of(folder)).views
    return view


def text_of(arms: list[Arm]) -> str:
    """What report.md says of benchmarks."""
    section = Section("benchmarks", "Benchmarks", content=page_of(arms))
    template = templates().get_template("sections/benchmarks.md.jinja")
    return template.render(section=section, images={})


BUDGETS = {
    "budgets": [
        {"tokens": t, "listed": t, "annealed": t == 6500,
         "tasks": {"mbpp": {"value": v, "se": 0.01}}}
        for t, v in ((2000, 0.1), (5000, 0.2), (6500, 0.3))
    ],
    "last_third": {"n": 2, "tasks": {"mbpp": 0.25}},
}  # fmt: skip
PAGES = {
    "base": {
        "mbpp": task(0.3, metric="pass@1", documents=1234, shots=3, version="2.5", truncated=7),
        "race_high": task(0.3),
        "sums": task(0.0, 0.0, metric="em"),
        "passages": task(2.0, 0.01, **LOSS),
    },
    "free_k1_2": {
        "mbpp": task(0.4, metric="pass@1", documents=1234, shots=3, version="2.5", truncated=9,
                     mc_error=0.0123, undecided=0.25),
        "race_high": task(0.31),
        "sums": task(0.5, metric="em"),
        "passages": task(1.5, 0.01, **LOSS),
    },
    "free_k3": {
        "mbpp": task(0.2, metric="pass@1", documents=1234, shots=3, version="2.5", truncated=7),
        "race_high": task(0.29),
        "sums": task(0.0, metric="em"),
        "passages": task(2.5, 0.01, **LOSS),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on PAGES; tests must not change it."""
    folder = tmp_path_factory.mktemp("benchmarks")
    return make_report(write(folder, PAGES, skipped={"race_middle": SKIPPED}, **BUDGETS))


def gains(page: str) -> list[tuple[str, str, str]]:
    """Class, percentage and verdict of every gain of this experiment."""
    found = re.findall(r'class="gain (.*?)">(.*?)<small>(.*?)</small>', page)
    assert all(len(one) == 3 for one in found)
    return found


def test_only_what_counts_is_bold_and_in_colour(made: Path) -> None:
    page = (made / "index.html").read_text()
    assert gains(page)[:8] == [
        ("counts better", "+33.33 %", "better"),
        ("counts worse", "−33.33 %", "worse"),
        ("none", "+3.33 %", "no difference"),
        ("none", "−3.33 %", "no difference"),
        ("counts better", "–", "better"),
        ("none", "–", "no difference"),
        ("counts better", "−25.00 %", "better"),
        ("counts worse", "+25.00 %", "worse"),
    ]
    style = page[: page.index("</style>")]
    assert ".counts { font-weight: 700; }" in style
    assert style.count("--better:") == style.count("--worse:") == 2  # light and dark


def rows(made: Path) -> dict[str, list[str]]:
    """Of the first table of benchmarks in report.md, by benchmark."""
    text = (made / "report.md").read_text()
    table = re.findall(r"(?:^\|.*\n)+", text[text.index("## Benchmarks") :], re.M)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert len({len(row) for row in cells}) == 1
    return {row[0]: row[1:] for row in cells}


def test_markdown_says_the_same(made: Path) -> None:
    found = rows(made)
    head = [
        "metric",
        "shots",
        "documents",
        "version",
        "base",
        "free_k1_2, κ = 1/2",
        "free_k3, κ = 3",
    ]
    assert found["benchmark"][:7] == head
    assert found["mbpp"][:7] == [
        "pass@1", "3", "1,234", "2.5", "0.300 ± 0.020",
        "0.400 ± 0.020; **+33.33 %** better", "0.200 ± 0.020; **−33.33 %** worse",
    ]  # fmt: skip
    assert found["race.high"][5] == "0.310 ± 0.020; +3.33 % (no difference)"
    assert found["sums"][5] == "0.500 ± 0.020; **–** better"
    assert found["passages"][0] == "bits_per_byte (lower is better)"
    assert found["passages"][5] == "1.500 ± 0.010; **−25.00 %** better"


def test_the_papers_figures_stand_beside_ours_at_the_same_threshold(made: Path) -> None:
    found = rows(made)
    assert found["benchmark"][7:] == ["paper, Table 1: baseline", "paper, Table 1: κ = 1/2"]
    assert found["mbpp"][7:] == ["0.112", "0.148; +32.14 %"]
    assert found["race.high"][7:] == ["0.390", "0.390; +0.00 %"]
    assert found["sums"][7:] == found["passages"][7:] == ["–", "–"]
    cells = [
        text for kind, text in Cells((made / "index.html").read_text()).cells if kind == "paper"
    ]
    assert [text.strip() for text in cells[:4]] == [
        "0.112",
        "0.148+32.14 %",
        "0.390",
        "0.390+0.00 %",
    ]


@pytest.mark.parametrize("page", ["index.html", "report.md"])
def test_what_has_to_be_known_is_said(made: Path, page: str) -> None:
    text = " ".join((made / page).read_text().split())
    for words in (
        "Suite mini, run by lm_eval 0.4.13 with seed 0.",
        "10 comparisons with base were made (2 of them over the last third of training), and 5 "
        "found a difference",
        "1,000 parameters and 6,500 tokens here, 1.5 B parameters and 47 B tokens there: the "
        "paper’s models are 1,500,000 times as large and trained on 7,230,000 times as many "
        "tokens.",
        "averaged in probability over K = 8 samples",
        "The paper does not state its shots and prompts",
        "mbpp, 7 to 9 requests a run",
        "± 0.012, 25.0 %",
        "race.middle: " + (markdown(SKIPPED) if page == "report.md" else SKIPPED),
        "mean of the last third of training",
    ):
        assert words in text, words


def test_the_last_third_is_beside_that_of_table_3(made: Path) -> None:
    text = (made / "report.md").read_text()
    table = text[text.index("mean of the last third of training") : text.index(", whole")]
    assert "paper, Table 3: κ = 1/2" in table
    assert "Table 3 of the paper (8 B parameters, 1 T tokens, mean of the last third)." in table
    (row,) = [line for line in table.splitlines() if line.startswith("| mbpp | pass@1 |")]
    assert "0.250 ± 0.010; +0.00 % (no difference) |" in row
    assert row.endswith("| 0.396 | 0.421; +6.08 % |")


def test_the_papers_tables_are_there_from_end_to_end(made: Path) -> None:
    page, text = ((made / name).read_text() for name in ("index.html", "report.md"))
    titles = re.findall(r"<summary>(.*?), whole</summary>", page)
    assert [title.partition(" (")[0] for title in titles] == [
        f"Table {n} of the paper" for n in (1, 2, 3, 3)
    ]
    assert [title.count("last third") for title in titles] == [0, 0, 0, 1]
    (row,) = [
        line for line in text.splitlines() if line.startswith("| boolq | acc_completion | 0.705")
    ]
    assert row.split(" | ")[2:] == [
        "0.705", "0.632; −10.37 %", "0.632; −10.33 %", "0.687; −2.47 %", "0.671; −4.82 % |"
    ]  # fmt: skip


def test_the_figure_is_on_both_pages(made: Path) -> None:
    assert (made / "figures/benchmarks_text.png").exists()
    assert "](figures/benchmarks_text.png)" in (made / "report.md").read_text()
    assert (
        'alt="Score on each benchmark against tokens on text"' in (made / "index.html").read_text()
    )


def test_scores_are_machine_readable_at_full_precision(made: Path) -> None:
    for name, key in (("arms.csv", "arm"), ("runs.csv", "run")):
        with open(made / name, newline="") as file:
            found = {row[key]: row for row in csv.DictReader(file)}["free_k1_2"]
        assert (found["suite_passages"], found["suite_passages_se"]) == ("1.5", "0.01")
        assert found.get("suite_mbpp_last_third") == ("0.25" if name == "arms.csv" else None)


def test_the_summary_has_a_benchmark_a_line(made: Path) -> None:
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


def test_the_papers_tables_are_left_out_where_nothing_is_in_common(tmp_path: Path) -> None:
    arms = arms_of(write(tmp_path / "mini", all_alike({"facts": task(0.3)})))
    page = page_of(arms)
    assert page.views[0].beside is None
    assert page.paper_tables == []
    assert "these benchmarks: none of these is in them.\n" in text_of(arms)
    entry = task(0.3, metric="pass@1")
    tasks = {name: {"mbpp": entry} for name in ("base", "free_k3")}
    arms = arms_of(write(tmp_path / "kappa", tasks))
    assert page_of(arms).views[0].beside is None
    assert "these benchmarks: no Free Transformer here has a κ of theirs.\n" in text_of(arms)


def test_another_metric_is_not_set_beside_the_papers(tmp_path: Path) -> None:
    tasks = {"csqa": task(0.3, metric="acc"), "mbpp": task(0.3, metric="pass@1")}
    folder = write(tmp_path, all_alike(tasks))
    view = view_of(folder)
    assert view.beside is not None
    csqa, mbpp = (view.beside.scores(each) for each in view.family.tasks)
    assert csqa is None and mbpp is not None
    assert "for another metric: csqa (acc here, acc_char there)." in text_of(arms_of(folder))


def test_models_of_the_papers_size_are_called_alike(tmp_path: Path) -> None:
    arms = arms_of(write(tmp_path, all_alike({"mbpp": task(0.3, metric="pass@1")})))
    for arm in arms:
        arm.first.evaluation.parameters = 8_030_000_000
        arm.first.evaluation.trained_tokens = 200_000_000_000
    beside = page_of(arms).views[0].beside
    assert beside is not None and beside.table.name == "Table 2"
    assert (
        "8.03 B parameters and 200 B tokens here, 8 B parameters and 200 B tokens there: about "
        "alike in both. The paper" in text_of(arms)
    )


@pytest.mark.parametrize(
    ("parameters", "tokens", "words"),
    [
        (1_500_000_000, 470_000_000, "there: the paper’s models are trained on 100 times as many"),
        (15_000_000, 47_000_000_000, "there: the paper’s models are 100 times as large. The"),
    ],
)
def test_how_far_the_papers_models_are_from_ours(
    tmp_path: Path, parameters: int, tokens: int, words: str
) -> None:
    arms = arms_of(write(tmp_path, all_alike({"mbpp": task(0.3, metric="pass@1")})))
    for arm in arms:
        arm.first.evaluation.parameters = parameters
        arm.first.evaluation.trained_tokens = tokens
    assert words in text_of(arms)


def test_a_suite_of_which_everything_was_skipped_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path, all_alike({}), skipped={"race_high": SKIPPED})
    write_suite(folder, "free_k3", {}, skipped={"race_high": "another reason"})
    assert view_of(folder).skipped == {
        "race.high": f"{SKIPPED} (base and free_k1_2); another reason (free_k3)"
    }
    made = make_report(folder)
    for page in ("index.html", "report.md"):
        text = (made / page).read_text()
        assert "another reason (free_k3)" in text
        for words in ("put beside these benchmarks", "Beside them", "is compared here"):
            assert words not in text  # nothing of the paper's tables, nor of a baseline


NOTES = ["a sample of 500 of 3,498 questions"]
FILES = ["EleutherAI/race from a/b at 8c8dd48, race.jsonl, sha256 d9ac"]
HUB = ["baber/piqa at 1234"]


def test_where_data_are_from_and_how_they_differ_is_said(tmp_path: Path) -> None:
    race = task(0.3, notes=NOTES, sources=FILES, documents=500)
    folder = write(tmp_path, all_alike({"race_high": race, "piqa": task(0.4, sources=HUB)}))
    made = make_report(folder)
    for page in ("index.html", "report.md"):
        text = " ".join((made / page).read_text().split())
        assert "differ from the hub’s" in text and "Where the data are from:" in text
        assert f"race.high: {NOTES[0]}; EleutherAI/race from a/b at 8c8dd48, race.jsonl" in text
        assert "piqa: baber/piqa at 1234" in text
        assert text.count("not as on the hub: see below") == 1
    (line,) = [
        line for line in (made / "summary.txt").read_text().splitlines() if "on the hub" in line
    ]
    assert line == "data not as on the hub: race.high (how: see the report)"


@rejects(
    "report/benchmarks/table.py",
    "getattr(task, name) for name in ALIKE",
    "getattr(task, name) for name in ALIKE[:5]",
    "scores on different data compared",
)
def test_scores_on_other_data_are_not_compared(tmp_path: Path) -> None:
    tasks = all_alike({"race_high": task(0.3, notes=NOTES, sources=FILES)})
    tasks["free_k3"] = {"race_high": task(0.3, sources=HUB)}
    view = view_of(write(tmp_path, tasks))
    assert view.unlike == ["race.high of free_k3"]
    assert set(view.family.final["race_high"]) == {"base", "free_k1_2"}


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    tasks = {name: {"mbpp": task(0.3, metric="pass@1")} for name in ("free_k1_2", "free_k3")}
    folder = write(tmp_path, tasks)
    assert "\nNothing is compared here: no plain baseline" in text_of(arms_of(folder))
    assert not view_of(folder).family.compared()


def test_how_far_a_comparison_goes_is_said(tmp_path: Path) -> None:
    seed = "another seed may undo it"
    text = text_of(arms_of(write(tmp_path / "one", all_alike({"mbpp": task(0.3)}))))
    assert seed in text
    runs = {name: run("text", seed=number) for number, name in enumerate(("base", "again"))}
    write_experiment(tmp_path / "two", runs | {"free_k3": ARMS["free_k3"]}, {})
    for name in ("base", "again", "free_k3"):
        write_suite(tmp_path / "two", name, {"mbpp": task(0.3, documents=30)})
    text = text_of(arms_of(tmp_path / "two"))
    assert "\n1 comparison with base was made" in text
    assert seed not in text


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((None, None, None), "lm_eval 0.4.13 with seed 0. ±"),
        ((50, 100, 50), "seed 0, on at most 100 documents a task. ±"),
        ((50, None, 50), "seed 0, some runs on at most 50 documents a task. ±"),
    ],
)
def test_the_limit_is_said(limits: tuple[int | None, ...], words: str, tmp_path: Path) -> None:
    folder = write(tmp_path, all_alike({"mbpp": task(0.3)}))
    for name, limit in zip(ARMS, limits, strict=True):
        write_suite(folder, name, {"mbpp": task(0.3)}, limit=limit)
    assert words in text_of(arms_of(folder))


def test_arms_scored_in_another_way_are_named(tmp_path: Path) -> None:
    tasks = all_alike({"mbpp": task(0.3)}) | {"free_k3": {"mbpp": task(0.3, shots=5)}}
    text = text_of(arms_of(write(tmp_path, tasks)))
    assert "task than the others: mbpp of free_k3. `dvc repro`" in text


def test_scoring_is_that_of_the_free_transformers(tmp_path: Path) -> None:
    folder = write(tmp_path, all_alike({"mbpp": task(0.3)}))
    write_suite(folder, "free_k3", {"mbpp": task(0.3)}, scoring="posterior_prompt", samples=1)
    arms = arms_of(folder)
    assert re.search(
        r"K = 8 samples of z: .*\(marginal\) \(free_k1_2\) and for a single sample of z, K = 1: .* "
        r"literal procedure\) \(free_k3\)\. Rolling",
        text_of(arms),
    )
    assert "log P(answer | prompt)" not in text_of(arms[:1])
    assert "(marginal). Rolling" in text_of(arms[:2])


def test_numbers_in_words() -> None:
    assert [magnitude(n) for n in (6500, 1.2e6, 1.5e9, 47e9, 1e12)] == [
        "6,500", "1.2 M", "1.5 B", "47 B", "1 T"
    ]  # fmt: skip
    assert [percent(x) for x in (44.444, -11.93, 0.0)] == ["+44.44 %", "−11.93 %", "+0.00 %"]


def test_a_limit_is_one_of_each_part(tmp_path: Path) -> None:
    def text(**parts: Any) -> str:
        tasks = {"mmlu": task(0.3, **parts), "piqa": task(0.3)}
        return text_of(arms_of(write(tmp_path / str(len(parts)), all_alike(tasks), limit=5)))

    assert ", on at most 5 documents a task." in text()
    assert "5 documents a task (of mmlu: of each part)." in text(subtasks={"a": 0.2, "b": 0.4})
