"""What is said of the size of a text and of its overlap."""

import json
from pathlib import Path

from pipelines.report.sections.corpora import overlap_words


def test_data_are_said_in_words(seeded: Path, tmp_path: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (seeded / name).read_text()
        assert "train: 1,200 documents, 34,567 tokens, 1 byte" in text
        assert "was not looked at" in text
    overlap = {"n": 13, "documents": 40, "documents_with_overlap": 1, "tokens": 2000}
    (tmp_path / "overlap.json").write_text(json.dumps(overlap | {"tokens_overlapping": 50}))
    words = "2.50 % of 2,000 held-out tokens, in 1 of 40 documents, are in 13-grams"
    assert overlap_words(tmp_path).startswith(words)
