"""The blocks of a section. markdown.py writes them; html.py makes a page of the Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

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
