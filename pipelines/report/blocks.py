"""The blocks of a section. markdown.py writes them; html.py makes a page of the Markdown."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib.figure import Figure

from pipelines.host.errors import printable
from pipelines.host.files import ROOT

BELOW = "↳ "  # begins the name of a row that belongs to the row above it
NOT_COMPARABLE = " (not comparable)"  # ends the head of a column that arms may not be compared by


class Block:
    """Something to read or to see."""


@dataclass(frozen=True)
class Text(Block):
    """Paragraphs, a list or a heading in Markdown; other people's text must be `escaped`."""

    markdown: str


@dataclass(frozen=True)
class Table(Block):
    """Cells in Markdown. A row begins with its name."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture(Block):
    """A figure, and its description for those who do not see it."""

    name: str  # of its file
    figure: Figure
    description: str


@dataclass(frozen=True)
class Samples(Block):
    """What a model wrote, as it is."""

    kind: str  # fresh or pinned: sequences of the target task; prompt or sample: any text
    text: str


@dataclass(frozen=True)
class Group(Block):
    """Blocks within an element of HTML."""

    opening: str
    blocks: Sequence[Block]
    closing: str


@dataclass(frozen=True)
class Section:
    """A topic of the report; docs/report.md explains it under the same title."""

    name: str
    title: str
    blocks: Sequence[Block]


def table(rows: Iterable[Mapping[str, str] | Sequence[tuple[str, str]]]) -> list[Table]:
    """A table of rows, each of pairs of head and cell; no table if there are no rows."""
    pairs = [row.items() if isinstance(row, Mapping) else row for row in rows]
    cells = [[cell for _, cell in row] for row in pairs]
    return [Table([head for head, _ in pairs[0]], cells)] if pairs else []


def heading(words: str) -> Text:
    return Text(f"### {words}")


def fold(title: str, blocks: Sequence[Block]) -> Group:
    """Blocks that are shown on a click."""
    return Group(f"<details><summary>{title}</summary>", blocks, "</details>")


def side_by_side(columns: Iterable[Sequence[Block]]) -> Group:
    """Columns of blocks, beside one another where there is room."""
    each = [Group("<div>", column, "</div>") for column in columns]
    return Group('<div class="pair">', each, "</div>")


def figures(blocks: Sequence[Block]) -> Iterator[Picture]:
    """All pictures among blocks, also within others."""
    for block in blocks:
        if isinstance(block, Picture):
            yield block
        elif isinstance(block, Group):
            yield from figures(block.blocks)


# Explains the parts of a report: the first paragraph under each title of docs/report.md.

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


# Writes blocks as Markdown.

MARKUP = re.compile(r"[\\`*\[\]#|~$]|(?<!\w)_|_(?!\w)|!(?=\[)")  # not a _ within a name
NUMBERS = re.compile(r"(\*\*)?[−+≤±]? ?\d.*|–?")


def escaped(text: str) -> str:
    """Text for a line of Markdown, where it is neither markup nor HTML."""
    line = " ".join(printable(html.escape(text, quote=False)).split())
    return MARKUP.sub(r"\\\g<0>", line)


def markdown_of(blocks: Sequence[Block]) -> str:
    return "\n\n".join(map(block_markdown, blocks))


def block_markdown(block: Block) -> str:
    match block:
        case Text(markdown):
            return markdown
        case Table(head, rows):
            return table_markdown(head, rows)
        case Picture(name, _, description):
            return f"![{description}](figures/{name}.png)"
        case Samples(kind, text):
            longest = max(map(len, re.findall("`+", text)), default=0)
            fence = "`" * max(3, longest + 1)  # which the text cannot close
            return f"{fence}{kind}\n{printable(text)}\n{fence}"
        case Group(opening, inner, closing):
            return f"{opening}\n\n{markdown_of(inner)}\n\n{closing}"
    raise TypeError(block)


def table_markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown, with columns of numbers aligned on the right."""
    columns = list(zip(*rows, strict=True))
    sides = [
        "---:" if i and all(map(NUMBERS.fullmatch, column)) else "---"
        for i, column in enumerate(columns)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, sides, *rows))


def section_markdown(topic: Section) -> str:
    """A section in Markdown. By its name, in a comment, `keep` and links in the page find it."""
    link = f"[How to read it](../../docs/report.md#{anchor(topic.title)})"
    words = paragraphs().get(topic.title, "")
    parts = [f"## {topic.title}\n<!-- {topic.name} -->", words, link, markdown_of(topic.blocks)]
    return "\n\n".join(filter(None, parts))
