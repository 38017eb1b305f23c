"""Sections and pages of a report, read back."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import getp
from matplotlib.axes import Axes

from pipelines.report import blocks
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Entry, Group, Head, Section, Table
from pipelines.report.sections import TOPICS, Topic

EXPECTED = Path(__file__).parents[1] / "report/expected"


def text_of(topic: Topic, analysis: Analysis) -> str:
    """What report.md says of a topic."""
    title, _ = TOPICS[topic.__name__]
    return blocks.section_markdown(Section(topic.__name__, title, topic(analysis)))


def tables(blocks: Sequence[Block]) -> Iterator[Table]:
    """In their order; those that are folded away, too."""
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Group):
            yield from tables(block.blocks)


def printed(row: Iterable[Entry | Head]) -> list[str]:
    """The cells of a row as Markdown has them."""
    return [*map(str, row)]


def by_name(table: Table) -> dict[str, dict[str, str]]:
    """The cells of each row by head, by the row's name."""
    head = printed(table.head)
    return {str(row[0]): dict(zip(head, printed(row), strict=True)) for row in table.rows}


def numbers(text: object) -> list[str]:
    """As they are written, with their signs."""
    return re.findall(r"[−+]?\d[\d,.]*(?<![,.])", str(text))


def heights(axes: Axes, **look: Any) -> list[list[float]]:
    """Of the lines that look so; matplotlib's names, such as linestyle."""
    lines = [line for line in axes.lines if all(getp(line, k) == look[k] for k in look)]
    return [[*line.get_ydata()] for line in lines]


def check_report(name: str, report: Path) -> None:
    """Check the table of summary.txt, sections and tables of report.md and CSV files (with 7
    digits) against tests/report/expected/, where they were read and found right; where a change is
    meant, copy the file that is named over the old one.
    """
    lines = (report / "report.md").read_text().splitlines()
    summary, _, _ = (report / "summary.txt").read_text().partition("\n\n")
    parts = [summary, *(x for x in lines if x.startswith(("<!--", "|")))]
    parts += [f"{path.name}\n{path.read_text()}" for path in sorted(report.glob("*.csv"))]
    found = report.parent / f"{name}.md"
    digits = re.compile(r"\d+\.\d{7,}(?:e-\d+)?")
    found.write_text(digits.sub(lambda long: f"{float(long[0]):.7g}", "\n".join(parts)))
    assert found.read_text() == (EXPECTED / found.name).read_text(), f"see {found}"
