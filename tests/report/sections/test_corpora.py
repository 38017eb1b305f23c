"""What is said of the overlap of held-out text with training text."""

import json

from pipelines.report.sections.corpora import overlap_words


def test_overlap_is_said_in_words(tmp_path):
    overlap = {"n": 13, "documents": 40, "documents_with_overlap": 1, "tokens": 2000}
    (tmp_path / "overlap.json").write_text(json.dumps(overlap | {"tokens_overlapping": 50}))
    words = "2.50 % of 2,000 held-out tokens, in 1 of 40 documents, are in 13-grams"
    assert overlap_words(tmp_path).startswith(words)
