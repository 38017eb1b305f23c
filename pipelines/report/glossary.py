"""What may and may not be compared, term by term; the text is in templates/glossary.jinja."""

from pathlib import Path

from pipelines.report.wording import paragraphs

TEXT = Path(__file__).with_name("templates") / "glossary.jinja"
NOTES = dict(
    paragraph.split(": ", maxsplit=1) for paragraph in paragraphs(TEXT.read_text(encoding="utf-8"))
)
