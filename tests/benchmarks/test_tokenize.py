from benchmarks import tokenize
from pipelines.artifacts import corpus
from tests.benchmarks.checks import quick_figures


def test_stage_tokenizers_and_search(monkeypatch):
    monkeypatch.setattr(corpus, "PART_BYTES", corpus.PART_BYTES)
    assert list(quick_figures(tokenize)) == [
        "stage tokenize",
        "tokenizers alone",
        "stage ÷ tokenizers: speed",
        "search for overlap",
    ]
