"""Writes blocks as Markdown."""

import html
import re
from collections.abc import Sequence

from pipelines.common.printable import printable
from pipelines.report.blocks import Block, Group, Picture, Samples, Section, Table, Text
from pipelines.report.explanations import anchor, paragraphs

MARKUP = re.compile(r"[\\`*\[\]#|~$]|(?<!\w)_|_(?!\w)|!(?=\[)")  # not a _ within a name
NUMBERS = re.compile(r"(\*\*)?[−+≤±]? ?\d.*|–?")


def escaped(text: str) -> str:
    """Text for a line of Markdown, where it is neither markup nor HTML."""
    line = " ".join(printable(html.escape(text, quote=False)).split())
    return MARKUP.sub(r"\\\g<0>", line)


def written(blocks: Sequence[Block]) -> str:
    return "\n\n".join(map(one, blocks))


def one(block: Block) -> str:
    match block:
        case Text(markdown):
            return markdown
        case Table(head, rows):
            return table(head, rows)
        case Picture(name, _, description):
            return f"![{description}](figures/{name}.png)"
        case Samples(kind, text):
            longest = max(map(len, re.findall("`+", text)), default=0)
            fence = "`" * max(3, longest + 1)  # which the text cannot close
            return f"{fence}{kind}\n{printable(text)}\n{fence}"
        case Group(opening, inner, closing):
            return f"{opening}\n\n{written(inner)}\n\n{closing}"
    raise TypeError(block)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown, with columns of numbers aligned on the right."""
    columns = list(zip(*rows, strict=True))
    sides = [
        "---:" if i and all(map(NUMBERS.fullmatch, column)) else "---"
        for i, column in enumerate(columns)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, sides, *rows))


def section(topic: Section) -> str:
    """A section in Markdown. By its name, in a comment, `keep` and links in the page find it."""
    link = f"[How to read it](../../docs/report.md#{anchor(topic.title)})"
    words = paragraphs().get(topic.title, "")
    parts = [f"## {topic.title}\n<!-- {topic.name} -->", words, link, written(topic.blocks)]
    return "\n\n".join(filter(None, parts))
