"""Explains the parts of a report: the first paragraph under each title of docs/report.md."""

import re
from functools import cache

from pipelines.common.atomic_files import ROOT
from pipelines.report.blocks import Text

PAGE = ROOT / "docs/report.md"


@cache
def paragraphs() -> dict[str, str]:
    """Paragraphs by title. Links lead from a report's folder, and only lists have several lines."""
    text = PAGE.read_text(encoding="utf-8").replace("](", "](../../docs/")
    found = re.findall(r"^#+ (.+)\n\n((?:.+\n)+)", text, re.MULTILINE)
    return {title: re.sub(r"\n(?!- )", " ", words.strip()) for title, words in found}


def explained(title: str) -> Text:
    return Text(paragraphs()[title])


def anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
