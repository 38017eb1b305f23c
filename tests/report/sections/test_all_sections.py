"""What the section of a new topic brings is on both pages."""

import json

from matplotlib.figure import Figure

from pipelines.report.blocks import Picture, Section, Table, Text
from pipelines.report.sections import all_sections
from pipelines.report.sections.corpora import overlap_words
from tests.support.results import make_report, run, write_experiment


def test_a_new_section_is_on_both_pages(tmp_path, monkeypatch):
    def section(analysis):
        table = Table(["run", "parameters"], [[arm.name, "7"] for arm in analysis.arms])
        blocks = [Text("It has words."), table, Picture("new", Figure(), "A new figure")]
        return Section("new", "A new topic", blocks)

    monkeypatch.setattr(all_sections, "SECTIONS", (section,))
    folder = make_report(write_experiment(tmp_path, {"base": run()}, {}))
    page, markdown = ((folder / name).read_text() for name in ("index.html", "report.md"))
    assert '<h2 id="new">A new topic</h2>' in page and "## A new topic" in markdown
    assert '<a href="#new">A new topic</a>' in page
    assert "It has words." in page and "It has words." in markdown
    assert "| base | 7 |" in markdown and '<th scope="row">base</th>' in page
    assert 'alt="A new figure"' in page and "![A new figure](figures/new.png)" in markdown
    assert (folder / "figures/new.png").exists()


def test_overlap_is_said_in_words(tmp_path):
    overlap = {"n": 13, "documents": 40, "documents_with_overlap": 1, "tokens": 2000, "whole": True}
    (tmp_path / "overlap.json").write_text(json.dumps(overlap | {"tokens_overlapping": 50}))
    words = "2.50 % of 2,000 held-out tokens, in 1 of 40 documents, are in 13-grams"
    assert overlap_words(tmp_path).startswith(words)
