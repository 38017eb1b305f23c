"""The report on results written by hand: what is on its pages and in its tables."""

import re
import shutil
from html import escape, unescape
from pathlib import Path
from unittest.mock import Mock

import matplotlib

from pipelines.report import page
from pipelines.report.blocks import anchor, explanation
from pipelines.report.sections.figure4 import read_paper
from tests.support.mutants import rejects
from tests.support.pages import check_report
from tests.support.results import GROUP, make_report

TEXTS = ("index.html", "report.md", "summary.txt", "arms.csv")


def test_every_output_is_written(small, seeded):
    outputs = {str(path.relative_to(small)) for path in small.rglob("*") if path.is_file()}
    names = ("headline", "figure4", "curves_target", "curves_text", "kl_per_bit")
    figures = {f"figures/{name}.png" for name in names}
    assert outputs == {
        *TEXTS, "explorer.html", "curves.csv", "runs.csv", "figure4.csv", *figures
    }  # fmt: skip
    markdown = (small / "report.md").read_text()
    assert set(re.findall(r"!\[.*?\]\((.*?)\)", markdown)) == figures
    names = {f"{name}_text" for name in ("kappa", "budgets", "samples", "label", "curves")}
    drawn = {path.stem for path in (seeded / "figures").iterdir()}
    assert drawn == names | {"kl_per_bit", "headline"}


@rejects("bounds.figure_cells: estimate(figures.«elbo→iwae»)", "a bound under the name of another")
def test_all_tables_are_those_that_were_found_right(small, seeded):
    """Among them differences from two baselines with both errors over seeds, which are not pooled
    where `free_1` alone has a spread; budgets; the label; single runs."""
    check_report("small", small)
    check_report("seeded", seeded)


@rejects('html.words_html: «f"#{path}/{place}"→path»', "links to files that a reader may lack")
@rejects("html.definitions_html: «dirname(page)→'docs'»", "links that lead away")
def test_a_page_is_complete_without_the_repository(small, seeded):
    """Each explanation is in it, on a click, and so are the definitions that it links to."""
    for report in (small, seeded):
        page = (report / "index.html").read_text()
        links, ids = (re.findall(rf'\b{name}="(.*?)"', page) for name in ("href", "id"))
        assert len(ids) == len(set(ids))
        papers = {link for link in links if link.startswith("https://arxiv.org/")}
        assert {*links} - papers - {f"#{name}" for name in ids} == {"explorer.html"}
        assert '<a href="#docs/measurement/differences.md">' in page
        assert "(docs/latent_designs.md)" in page and "(docs/measurement" not in page
        for title in re.findall('<h2 id=".*?">(.*?)</h2>\n<!--', page):
            for words in explanation(unescape(title))[1:]:
                assert escape(re.split(r"[\[*`_]", words.lstrip("*- "))[0], quote=False) in page


def test_links_of_the_markdown_lead_to_headings_as_github_names_them(small, seeded):
    pages = "".join((report / "report.md").read_text() for report in (small, seeded))
    linked = set(re.findall(r"\]\(\.\./\.\./(docs/[\w/]+\.md)#(.*?)\)", pages))
    assert len(linked) > 1
    for name, place in linked:
        titles = re.findall(r"^#+ (.*)", Path(name).read_text(), re.M)
        assert place in {*map(anchor, titles)}


def test_page_stands_alone_and_has_samples_as_text_that_cannot_break_it(small):
    page, markdown = ((small / name).read_text() for name in ("index.html", "report.md"))
    assert not re.search(r'src(set)?="(?!data:)|url\(|@import|<link|<iframe', page)
    images = re.findall(r'<img src="(.*?)"', page)
    assert len(images) == 5 and '<a href="#curves">Training curves</a>' in page
    assert all(image.startswith("data:image/png;base64,iVBOR") for image in images)
    plain = unescape(re.sub(r"<[^>]*>", "", page))
    assert GROUP[0] in plain
    assert read_paper()[0.125].fresh[0] in plain
    assert "if a &lt;b&gt; &amp;" in page
    assert "\x04" not in page + markdown
    # the picture and the verdicts come before everything else
    places = [markdown.index(words) for words in ("headline.png", "| arm | verdict", "## ")]
    assert places == sorted(places)


def test_parts_without_content_are_left_out(bare):
    text = (bare / "report.md").read_text()
    titles = ["Data", "Measurements", "Training curves", "What may not be compared"]
    assert re.findall("^## (.*)", text, re.M) == titles
    assert "Question" not in text and "headline" not in text
    assert [path.name for path in (bare / "figures").iterdir()] == ["curves_text.png"]
    assert (bare / "figure4.csv").read_text().strip() == ""


def test_what_was_done_is_said(seeded):
    text = " ".join((seeded / "report.md").read_text().split())
    assert "train: 1,200 documents, 34,567 tokens, 1 byte" in text
    assert "2.50 % of 2,000" in text and "1 of 40 documents" in text
    # 3 + 2 final ones, against one or two baselines; 3 at two budgets and of the last third
    assert "14 comparisons" in text


@rejects("page.main: «shutil.rmtree(early, ignore_errors=True)→pass»", "an early report that stays")
def test_finished_runs_are_shown_while_others_are_trained(tmp_path, small):
    """Marked as such, beside the report of all, which is the same to the byte and ends it."""
    folder = shutil.copytree(small.parents[1], tmp_path / "copy")
    late = folder / "results/tiny/free_wide/evaluation.json"
    late.rename(folder / "kept")
    early = make_report(folder, so_far=True).with_name("tiny.so_far")
    marked = "tiny: 4 of 5 runs are finished"
    assert (early / "report.md").read_text().startswith(f"# {marked}\n")
    assert f"<h1>{marked}</h1>" in (early / "index.html").read_text()
    assert "free_wide" not in (early / "runs.csv").read_text()
    (folder / "kept").rename(late)
    report = make_report(folder)
    assert not early.exists()
    for path in (path for path in small.rglob("*") if path.is_file()):
        assert (report / path.relative_to(small)).read_bytes() == path.read_bytes(), path


@rejects("page.report_on: «matplotlib.rcdefaults()→pass»", "figures in the user's style")
def test_figures_are_the_same_whatever_a_matplotlibrc_says(monkeypatch):
    user = {"text.usetex": True, "font.family": ["serif"], "figure.figsize": [30.0, 30.0]}
    monkeypatch.setattr(page, "Analysis", Mock())
    monkeypatch.setattr(page, "group_by_seed", Mock())
    seen = []
    monkeypatch.setattr(page, "all_sections", lambda _: seen.append({**matplotlib.rcParams}))
    with matplotlib.rc_context(user):
        page.report_on(Mock(runs=["unfinished"]), [])
    (style,) = seen
    assert {key: style[key] for key in user} == {
        key: matplotlib.rcParamsDefault[key] for key in user
    }
