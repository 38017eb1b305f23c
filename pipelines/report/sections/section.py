"""A topic of the report."""

from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

Table = list[list[str]]  # the head, then rows; a row begins with its name
Figures = dict[str, tuple[Figure, str]]  # by file name: what is drawn, and its description


@dataclass(frozen=True)
class Section:
    """What the pages show of a topic, laid out by templates/sections/<name>.(html|md).jinja or, if
    there are none, by section.(html|md).jinja. How to read it is said in sections/<name>.jinja: the
    first paragraph is always shown, others fold away.
    """

    name: str
    title: str
    sentences: list[str] = field(default_factory=list)  # made from the figures
    table: Table = field(default_factory=list)
    figures: Figures = field(default_factory=dict)
    content: Any = None  # what templates of its own show
