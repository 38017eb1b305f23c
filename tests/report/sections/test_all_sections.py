"""A topic is a file and a line: what a new one brings is on both pages."""

import json

from matplotlib.figure import Figure

from pipelines.report.page import TEMPLATES
from pipelines.report.sections import all_sections
from pipelines.report.sections.corpora import overlap_words
from pipelines.report.sections.section import Section
from tests.support.results import make_report, run, write_experiment


def test_a_new_section_is_one_function_in_the_list(tmp_path, monkeypatch):
    def section(analysis):
        table = [["run", "parameters"], *([arm.name, "7"] for arm in analysis.arms)]
        figures = {"new": (Figure(), "A new figure")}
        return Section("new", "A new topic", ["It has a < sentence."], table, figures)

    monkeypatch.setattr(all_sections, "SECTIONS", (section,))
    folder = make_report(write_experiment(tmp_path, {"base": run()}, {}))
    page, markdown = ((folder / name).read_text() for name in ("index.html", "report.md"))
    assert '<h2 id="new">A new topic</h2>' in page and "## A new topic" in markdown
    assert "It has a &lt; sentence." in page and "- It has a < sentence." in markdown
    assert '<th scope="row">base</th><td>7</td>' in page and "| base | 7 |" in markdown
    assert 'alt="A new figure"' in page and "![A new figure](figures/new.png)" in markdown
    assert (folder / "figures/new.png").exists()


def test_every_explanation_is_of_a_section():
    """The first paragraph is shown, and the others fold away."""
    names = {make.__module__.rpartition(".")[2] for make in all_sections.SECTIONS} | {"section"}
    templates = {path.name.partition(".")[0] for path in (TEMPLATES / "sections").iterdir()}
    assert templates <= names


def test_overlap_is_said_in_words(tmp_path):
    overlap = {"n": 13, "documents": 40, "documents_with_overlap": 1, "tokens": 2000}
    (tmp_path / "overlap.json").write_text(json.dumps(overlap | {"tokens_overlapping": 50}))
    words = "2.50 % of 2,000 held-out tokens, in 1 of 40 documents, are in 13-grams"
    assert overlap_words(tmp_path).startswith(words)
