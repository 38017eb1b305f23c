"""HTML pages, read back."""

from html.parser import HTMLParser


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
