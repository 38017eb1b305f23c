"""What a report is made of, and Markdown made of it.

Sections return blocks: text, tables, pictures and samples. A table's cells keep a number apart from
its error, further notes and a verdict, because Markdown writes them side by side and a page
(html.py) prints all but the number small. Texts that explain a part come from docs/report.md.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib.figure import Figure

from pipelines.host.errors import UserError, printable
from pipelines.host.files import ROOT


@dataclass(frozen=True)
class Verdict:
    """A word that judges a difference. It is bold, and in colour on a page, if it counts."""

    word: str  # empty: nobody judges the change
    counts: bool = False
    change: str = ""  # in percent
    reason: str = ""
    star: bool = False  # whether it survives that so many differences were tested

    def __str__(self) -> str:
        if self.counts:
            said = f"**{self.emphasized}**"
        elif self.change and self.word:
            said = f"{self.change} ({self.word})"
        else:
            said = self.change or self.word
        return f"{said} ({self.reason})" if self.reason else said

    @property
    def emphasized(self) -> str:
        """What is bold if the verdict counts."""
        word = f"{self.word} ★" if self.star else self.word
        return f"{self.change} {word}" if self.change else word


@dataclass(frozen=True)
class Cell:
    """A number in a table. Columns that have nothing else are aligned on the right."""

    value: str  # as it is printed
    error: str = ""  # ± 0.0100, or a range in parentheses
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None

    def __str__(self) -> str:
        number = f"{self.value} {self.error}" if self.error else self.value
        said = ", ".join((number, *self.notes))
        if not self.verdict:
            return said
        return f"{said}{': ' if self.verdict.reason else '; '}{self.verdict}"


MISSING = Cell("–")


@dataclass(frozen=True)
class Name:
    """A row's name."""

    words: str
    tag: str = ""  # a warning
    below: bool = False  # whether the row belongs to the one above it

    def __str__(self) -> str:
        tagged = f"{self.words} **({self.tag})**" if self.tag else self.words
        return f"↳ {tagged}" if self.below else tagged


@dataclass(frozen=True)
class Column:
    """The head of a column; a page shows what arms may not be compared by in grey."""

    words: str
    comparable: bool = True

    def __str__(self) -> str:
        return self.words if self.comparable else f"{self.words} (not comparable)"


Head = Column | str
Entry = Cell | Verdict | Name | str  # a text is a line of Markdown
Entries = dict[Head, Entry]  # of a row; a table has no two columns of one name


class Block:
    """Something to read or to see."""


@dataclass(frozen=True)
class Text(Block):
    """Paragraphs, a list or a heading in Markdown; other people's text must be `escaped`."""

    markdown: str


@dataclass(frozen=True)
class Table(Block):
    """A row begins with its name."""

    head: Sequence[Head]
    rows: Sequence[Sequence[Entry]]

    @property
    def numeric(self) -> list[bool]:
        """Whether a column has only numbers, for each; the first has names."""
        columns = zip(*self.rows, strict=True)
        return [i > 0 and all(isinstance(c, Cell) for c in each) for i, each in enumerate(columns)]


@dataclass(frozen=True)
class Picture(Block):
    """A figure, and its description for those who do not see it."""

    name: str  # of its file
    figure: Figure
    description: str
    narrow: Figure | None = None  # the same for a phone, on a page alone


@dataclass(frozen=True)
class Samples(Block):
    """What a model wrote, as it is."""

    kind: str  # fresh or pinned: sequences of the target task; prompt or sample: any text
    text: str


@dataclass(frozen=True)
class Group(Block):
    """Blocks between two lines of HTML."""

    opening: str
    blocks: Sequence[Block]
    closing: str


@dataclass(frozen=True)
class Section:
    """A topic of the report; docs/report.md explains it under the same title."""

    name: str
    title: str
    blocks: Sequence[Block]

    @property
    def body(self) -> list[Block]:
        """What stands under the title."""
        return [*explained(self.title), *self.blocks]


def table(rows: Iterable[Entries]) -> list[Table]:
    """A table of rows, or no table if there are no rows."""
    lines = [*rows]
    return [Table([*lines[0]], [[*line.values()] for line in lines])] if lines else []


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


@cache
def explanations() -> dict[str, list[str]]:
    """The paragraphs and lists under each title of docs/report.md, in the order of the page. Links
    lead from a report's folder, and only lists have several lines.
    """
    text = (ROOT / "docs/report.md").read_text(encoding="utf-8").replace("](", "](../../docs/")
    found: dict[str, list[str]] = {}
    title = ""
    for part in text.split("\n\n"):
        if part.startswith("#"):
            title = part.lstrip("#").strip()
        else:
            found.setdefault(title, []).append(re.sub(r"\n(?!- )", " ", part.strip()))
    return found


def explanation(title: str) -> list[str]:
    """What docs/report.md says under this title; raises UserError if it has no such title."""
    try:
        return explanations()[title]
    except KeyError:
        raise UserError(
            f"docs/report.md has no title {title!r}: the report quotes the text below it"
        ) from None


def explained(title: str) -> list[Block]:
    """The first paragraph of an explanation, with the others below it in a fold."""
    first, *others = explanation(title)
    more = [fold("How to read it", [Text("\n\n".join(others))])] if others else []
    return [Text(first), *more]


def anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


MARKUP = re.compile(r"[\\`*\[\]#|~$]|(?<!\w)_|_(?!\w)|!(?=\[)")  # not a _ within a name


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
            sides = ["---:" if numeric else "---" for numeric in block.numeric]
            lines = (head, sides, *rows)
            return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
        case Picture(name, _, description):
            return f"![{description}](figures/{name}.png)"
        case Samples(kind, text):
            longest = max(map(len, re.findall("`+", text)), default=0)
            fence = "`" * max(3, longest + 1)  # which the text cannot close
            return f"{fence}{kind}\n{printable(text)}\n{fence}"
        case Group(opening, inner, closing):
            return f"{opening}\n\n{markdown_of(inner)}\n\n{closing}"
    raise TypeError(block)


def section_markdown(section: Section) -> str:
    """A section in Markdown, with its name in a comment."""
    return f"## {section.title}\n<!-- {section.name} -->\n\n{markdown_of(section.body)}"
