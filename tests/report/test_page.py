"""The report on results written by hand: what is on its pages and in its tables."""

import csv
import re
from html import unescape
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from pipelines.common.errors import UserError
from pipelines.report.sections.figure4 import read_paper
from pipelines.report.verdicts import findings, introduction
from tests.report.conftest import RUNS, SEEDED
from tests.support.pages import Cells
from tests.support.results import (
    CE,
    GROUP,
    SAMPLES,
    analysis_of,
    make_report,
    run,
    task,
    write_experiment,
    write_suite,
)

TEXTS = ("index.html", "report.md", "summary.txt", "arms.csv")


def test_every_output_is_written(small: Path) -> None:
    outputs = {str(path.relative_to(small)) for path in small.rglob("*") if path.is_file()}
    names = ("headline", "figure4", "curves_target", "curves_text", "kl_per_bit")
    assert outputs == {*TEXTS, "explorer.html", "curves.csv", "runs.csv", "figure4.csv"} | {
        f"figures/{name}.png" for name in names
    }


def test_page_stands_alone(small: Path) -> None:
    page = (small / "index.html").read_text()
    cells = Cells(page)
    assert not re.search(r"https?:|url\(|@import", page)
    assert not cells.tags & {"link", "iframe"}
    assert len(cells.images) == 4  # figure 4 is there as text
    assert all(image.startswith("data:image/png;base64,iVBOR") for image in cells.images)


@pytest.mark.parametrize("name", TEXTS)
def test_exactly_the_runs_of_the_experiment_are_in(small: Path, name: str) -> None:
    text = (small / name).read_text()
    assert all(run_name in text for run_name in RUNS)
    assert "left_over" not in text


def test_markdown_links_only_figures_that_exist(small: Path) -> None:
    links = re.findall(r"!\[.*?\]\((.*?)\)", (small / "report.md").read_text())
    assert sorted(links) == sorted(f"figures/{p.name}" for p in (small / "figures").iterdir())


def test_markdown_tables_are_whole(small: Path) -> None:
    """A row after each head, and as many cells in each row of a table."""
    text = (small / "report.md").read_text()
    tables = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.M)]
    assert [len(table) - 2 for table in tables] == [4, 3, 1, 2, 1, 2, 3]
    for table in tables:
        assert len({row.count("|") for row in table}) == 1, table


def test_samples_are_selectable_text(small: Path) -> None:
    plain = unescape(re.sub(r"<[^>]*>", "", (small / "index.html").read_text()))
    assert GROUP[0] in plain
    assert read_paper(SAMPLES)[0.125].fresh[0][0] in plain


def test_reconstruction_ce_is_never_offered_for_comparison(small: Path) -> None:
    cells = Cells((small / "index.html").read_text()).cells
    heads = [kind for kind, text in cells if "reconstruction CE" in text]
    values = [kind for kind, text in cells if f"{CE:.4f}" in text]
    assert heads == ["grey"] * 3  # target; text per token and per byte
    assert values == ["grey"] * 4
    bounds = [kind for kind, text in cells if "0.7654" in text]
    assert bounds == [""]
    assert "reconstruction CE (not comparable)" in (small / "report.md").read_text()


def test_reconstruction_ce_is_in_no_summary(small: Path) -> None:
    page = (small / "index.html").read_text()
    before_tables = page[: page.index("<table>")]
    for text in ((small / "summary.txt").read_text(), before_tables):
        assert f"{CE:.4f}" not in text
        assert "0.7654" in text or "+0.2654" in text


def test_samples_cannot_break_the_page(small: Path) -> None:
    page = (small / "index.html").read_text()
    assert "if a &lt;b&gt; &amp;" in page
    assert "\x04" not in page + (small / "report.md").read_text()


def test_introduction_counts_arms(small: Path) -> None:
    text = introduction(analysis_of(small.parents[1]))
    assert text.startswith(
        "1 baseline and 2 Free Transformers (κ = 1/8, 3/10 bits per token) on target, 6,500 "
        "training tokens each; 1 baseline and 1 Free Transformer (κ = 1/2 bits per token) on text"
    )
    assert "for a Free Transformer by a particle filter" in text


def test_collapse_is_tagged(tmp_path: Path) -> None:
    runs = {"fine": run(kappa=1.0), "dead": run(kappa=2.0)}
    write_experiment(tmp_path, runs, {})
    path = tmp_path / "results/tiny/dead/evaluation.json"
    path.write_text(path.read_text().replace('"collapsed": 0', '"collapsed": 1'))
    folder = make_report(tmp_path)
    page = (folder / "index.html").read_text()
    assert re.findall(r">(\w+)<br><b class=\"tag\">collapsed", page) == ["dead"]
    assert "dead (collapsed)" in (folder / "summary.txt").read_text()
    assert "dead **(collapsed)**" in (folder / "report.md").read_text()
    assert findings(analysis_of(tmp_path))["target"][-1].endswith("of training): dead.")


@pytest.mark.parametrize(
    ("file", "stage"),
    [("evaluation.json", "evaluate"), ("details.json", "evaluate"), ("curve.csv", "train")],
)
def test_missing_result_names_the_stage(tmp_path: Path, file: str, stage: str) -> None:
    write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {})
    (tmp_path / "results/tiny/free" / file).unlink()
    with pytest.raises(UserError, match=f"free/{file} is missing.*dvc repro {stage}@free"):
        make_report(tmp_path)
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("file", ["suite.json", "suite_scores.json"])
def test_missing_scores_name_their_stage(tmp_path: Path, file: str) -> None:
    write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {})
    write_suite(tmp_path, "free", {"facts": task(0.3)})
    (tmp_path / "results/tiny/free" / file).unlink()
    with pytest.raises(UserError, match=f"free/{file} is missing.*dvc repro suite@free"):
        make_report(tmp_path)


@pytest.mark.parametrize(
    ("runs", "absent"),
    [
        ({"base": run("text"), "free": run("text", kappa=0.5)}, "Figure 4"),
        ({"base": run()}, "How much each latent bit carries"),
        ({"free": run(kappa=1.0)}, "Text samples"),
    ],
    ids=["text only", "baseline only", "no baseline"],
)
def test_parts_without_content_are_left_out(
    tmp_path: Path, runs: dict[str, dict[str, Any]], absent: str
) -> None:
    folder = make_report(write_experiment(tmp_path, runs, {}))
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text()
        assert absent not in text
        assert "What may not be compared" in text


def test_each_kind_of_figure_is_drawn_where_there_is_something_to_draw(seeded: Path) -> None:
    names = ("kappa", "budgets", "samples", "label", "curves")
    assert {path.stem for path in (seeded / "figures").iterdir()} == {
        *(f"{name}_text" for name in names), "kl_per_bit", "headline"
    }  # fmt: skip


def test_where_kappa_rose_the_table_of_arms_says_so(seeded: Path) -> None:
    """Of one arm, in the tables of bits per byte and per token."""
    for name in ("index.html", "report.md"):
        assert (seeded / name).read_text().count("κ rose from 0 over 3 steps") == 2


def test_single_runs_stay_visible(seeded: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (seeded / name).read_text()
        apart = text[text.index("text: single runs, bits per byte") :]
        assert all(run_name in apart for run_name in SEEDED)
        assert "0.1400" in apart and "0.1600" in apart  # 0.42 and 0.48 bits per token


def test_bits_per_byte_come_first_for_text(seeded: Path) -> None:
    text = (seeded / "report.md").read_text()
    assert text.index("### text: bits per byte") < text.index("### text: bits per token")
    head, *rows = (seeded / "summary.txt").read_text().splitlines()[:5]
    assert head.split() == ["arm", "data", "κ", "seeds", "bits/byte", "bits/token", "KL", "bits"]
    assert rows[2].split()[3:6] == ["2:", "0.0141", "0.1500"]


def test_free_transformers_stand_beside_both_baselines(seeded: Path) -> None:
    table = (seeded / "report.md").read_text().split("differences from the baselines")[1]
    head, _, *rows = [line for line in table.splitlines() if line.startswith("|")][:5]
    assert "from base (1,000 parameters)" in head and "from plus (1,001 parameters)" in head
    assert [row.split("|")[1].strip() for row in rows] == ["plus", "free_1", "free_2"]


def test_the_error_over_seeds_that_does_not_decide_is_a_column(seeded: Path) -> None:
    """The seeds of `free_1` alone differ, so that it is not pooled."""
    table = (seeded / "report.md").read_text().split("differences from the baselines")[1]
    head, _, _, free = [line.split("|") for line in table.splitlines() if line.startswith("|")][:4]
    assert head[4] == " other error over seeds " and "seeds ± 0.0100" in free[3]
    doubted = r" ± 0\.0071 pooled; equal spreads are doubted, p (= 0\.\d{3}|< 0\.001) "
    assert re.fullmatch(doubted, free[4])
    assert "<small>seeds ± 0.0100</small>" in (seeded / "index.html").read_text()
    assert "± 0.0071 pooled" in (seeded / "index.html").read_text()


def test_budgets_have_mean_spread_seeds_and_difference(seeded: Path) -> None:
    table = (seeded / "report.md").read_text().split("bound at each budget")[1]
    head, _, *rows = [line.split("|") for line in table.splitlines() if line.startswith("|")][:6]
    assert [cell.strip() for cell in head[2:-1:2]] == [
        "2,000 tokens", "5,000 tokens", "6,500 tokens", "mean of the last third"
    ]  # fmt: skip
    free = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}["free_1"]
    bound, difference = "0.1500 ± 0.0033, spread 0.0141, 2 seeds", "−0.0167, seeds ± 0.0100"
    # only this arm's seeds differ, so that it is not pooled: t of one degree of freedom
    told = "no difference (threshold 0.1271, 2 and 2 seeds)"
    assert free[:2] == [f"{bound}, snapshot", f"{difference}: {told}"]
    assert free[4:6] == [bound, f"−0.0167 ± 0.0033, seeds ± 0.0100: {told}"]
    assert free[6].startswith("0.3506, spread 0.0071, 2 seeds, 2 budgets")
    assert free[7].startswith("+0.0000, seeds ± 0.0071: no difference")
    page = (seeded / "index.html").read_text()
    assert page.count("<small>2 budgets</small>") == 4
    assert "the verdict is by seeds alone" in page
    with open(seeded / "arms.csv", newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["arm"] == "free_1"]
    assert float(row["last_third_spread"]) == pytest.approx(0.01 / sqrt(2))


def test_comparisons_at_budgets_are_counted(seeded: Path) -> None:
    """3 + 2 final ones, against one or two baselines; 3 at two budgets and of the last third."""
    assert "14 comparisons were made" in (seeded / "report.md").read_text()


def test_speed_of_scoring_is_on_the_pages(seeded: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (seeded / name).read_text()
        assert "scored, tokens/s" in text and "4,322" in text


def test_the_label_is_in_a_table_and_a_sentence_with_all_its_figures(seeded: Path) -> None:
    table = ["0.5000", "0.0100", "0.0200", "0.001", "0.6250", "0.0300", "0.0400", "0.002", "0.8750"]
    sentence = (
        "free_1: z carries the label: 0.50 bits by its best bit and 0.62 by all together, of 0.88 "
        "that the text tells, means over seeds (p ≤ 0.002)."
    )
    cells = [text for _, text in Cells((seeded / "index.html").read_text()).cells]
    lines = (seeded / "report.md").read_text().splitlines()
    for name in ("free_1_s0", "free_1_s1", "free_2_s0", "free_2_s1"):
        assert any(cells[i : i + 10] == [name, *table] for i in range(len(cells)))
        assert f"| {' | '.join([name, *table])} |" in lines
    head = lines.index(next(line for line in lines if "all bits together" in line))
    assert lines[head - 1] == "" and lines[head + 1] == "|" + 10 * "---|"
    assert f"<li>{sentence}</li>" in (seeded / "index.html").read_text()
    assert f"- {sentence}" in lines
