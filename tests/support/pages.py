"""Pages of a report, read back."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pipelines.report.page import templates
from pipelines.report.sections.section import Section


class Cells(HTMLParser):
    """Every table cell of a page as (classes, text), every image's source, every tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, str]] = []
        self.images: list[str] = []
        self.tags: set[str] = set()
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        if tag == "img":
            self.images.append(found["src"] or "")
        if tag in ("td", "th"):
            self.inside = True
            self.cells.append((found.get("class") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            kind, text = self.cells[-1]
            self.cells[-1] = (kind, text + data)


def both_pages(report: Path) -> list[str]:
    """The text of the HTML page and of the one in Markdown, each on one line."""
    texts = ((report / name).read_text() for name in ("index.html", "report.md"))
    return [" ".join(text.replace("\u00a0", " ").split()) for text in texts]


def markdown_table(report: Path, after: str) -> list[list[str]]:
    """Head and rows of the first table in report.md after these words."""
    text = (report / "report.md").read_text()
    block = re.search(r"(?:^\|.*\n)+", text[text.index(after) :], re.M)
    assert block
    head, _, *rows = block[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, *rows)]


def rendered(section: Section) -> list[str]:
    """A topic as it is in index.html and in report.md, each on one line."""
    texts = []
    for page in ("html", "md"):
        names = [f"sections/{name}.{page}.jinja" for name in (section.name, "section")]
        context: dict[str, Any] = {"section": section, "images": dict.fromkeys(section.figures, "")}
        text = templates().select_template(names).render(context)
        texts.append(" ".join(text.split()))
    return texts
