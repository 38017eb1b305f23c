"""What a section is made of. markdown.py writes blocks; html.py makes the page of that Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

BELOW = "↳ "  # begins the name of a row that belongs to the row above it
NOT_COMPARABLE = " (not comparable)"  # ends the head of a column that arms may not be compared by


class Block:
    """Something to read or to see."""


@dataclass(frozen=True)
class Text(Block):
    """Paragraphs, a list or a heading in Markdown; text of others is `escaped` in it."""

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
class Columns(Block):
    """Blocks side by side where there is room."""

    columns: Sequence[Sequence[Block]]


@dataclass(frozen=True)
class Fold(Block):
    """Blocks that are shown on a click."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Section:
    """A topic of the report."""

    name: str
    title: str
    blocks: Sequence[Block]


def heading(words: str) -> Text:
    return Text(f"### {words}")


def prose(words: str) -> Text:
    """Paragraphs whose lines may end anywhere."""
    return Text("\n\n".join(" ".join(part.split()) for part in words.split("\n\n")))


def explained(words: str, anchor: str) -> Text:
    """A paragraph with a link to the part of docs/measurement.md that says what is measured."""
    return prose(f"{words} [How it is measured](../../docs/measurement.md#{anchor})")


def figures(blocks: Sequence[Block]) -> Iterator[Picture]:
    """Those among blocks, also within others."""
    for block in blocks:
        match block:
            case Picture():
                yield block
            case Fold(_, inner):
                yield from figures(inner)
            case Columns(columns):
                for column in columns:
                    yield from figures(column)
