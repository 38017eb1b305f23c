"""What may and may not be compared, term by term; the text is in templates/glossary.jinja."""

from pathlib import Path

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Fold, Section, Text

TEXT = Path(__file__).parents[1] / "templates/glossary.jinja"


def notes() -> dict[str, str]:
    """A paragraph for each term."""
    paragraphs = TEXT.read_text(encoding="utf-8").split("\n\n")
    pairs = (" ".join(paragraph.split()).split(": ", maxsplit=1) for paragraph in paragraphs)
    return {term: meaning for term, meaning in pairs}


def section(analysis: Analysis) -> Section:
    folds = [Fold(term, [Text(meaning)]) for term, meaning in notes().items()]
    return Section("comparisons", "What may not be compared", folds)
