"""What a report says of its parts: the first paragraph under each title of docs/report.md."""

import re
from functools import cache

from pipelines.common.atomic_files import ROOT
from pipelines.report.blocks import Text

PAGE = ROOT / "docs/report.md"


@cache
def paragraphs() -> dict[str, str]:
    """By title; links lead from the folder of a report, and only a list has several lines."""
    text = PAGE.read_text(encoding="utf-8").replace("](", "](../../docs/")
    found = re.findall(r"^#+ (.+)\n\n((?:.+\n)+)", text, re.MULTILINE)
    return {title: re.sub(r"\n(?!- )", " ", words.strip()) for title, words in found}


def explained(title: str) -> Text:
    return Text(paragraphs()[title])


def anchor(title: str) -> str:
    """Of a heading, as GitHub names it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
