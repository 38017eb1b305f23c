"""Markdown as HTML, by markdown-it-py. HTML within it stays only where markdown.py writes it."""

import re
from collections.abc import Mapping
from html import escape
from itertools import groupby, zip_longest
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from ftmodel.synthetic.target import PROMPT
from pipelines.compare.arms import Arm, grouped
from pipelines.host.errors import printable
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import BELOW, NOT_COMPARABLE
from pipelines.report.wording import count

MARKDOWN = MarkdownIt("commonmark").enable("table")
RENDERER = RendererHTML()
OURS = re.compile(
    r'(</?details>|<summary>[^<>]*</summary>|<div( class="pair")?>|</div>)+|<!-- /?\w+ -->'
)
NAME = re.compile(r"<!-- (\w+) -->")
CLASSES = {  # of a verdict, by all of it or its last word
    **dict.fromkeys(("lower", "better", "came true"), "better"),
    **dict.fromkeys(("higher", "worse", "did not come true"), "worse"),
    "collapsed": "tag",
}
NUMBER = r"(?:<strong[^>]*>)?[−+≤]?\s?\d[\d.,]*(?:\s%)?(?:</strong>)?"
LEADING = re.compile(rf"({NUMBER})(?:\s(?=[±(])|[,;:]\s)(.+)")  # of a cell; the rest is small print


def html(markdown: str, images: Mapping[str, str]) -> str:
    """The body of a page; ``images`` are the figures as data URIs, by file name."""
    tokens = MARKDOWN.parse(markdown)
    cell = row = None
    column, grey = 0, set[int]()
    for i, token in enumerate(tokens):
        match token.type:
            case "html_block":
                text = token.content.strip()
                if (name := NAME.fullmatch(text)) and tokens[i - 1].type == "heading_close":
                    tokens[i - 3].attrSet("id", name[1])
                known = OURS.fullmatch(text)
                token.content = token.content if known else escape(token.content)
            case "fence":
                token.type, token.content = "html_block", samples(token.info, token.content)
            case "table_open":
                grey = set()
                token.type, token.content = "html_block", '<div class="wide"><table>\n'
            case "table_close":
                token.type, token.content = "html_block", "</table></div>\n"
            case "tr_open":
                row, column = token, 0
            case "th_open" | "td_open":
                cell = token
            case "th_close" | "td_close":
                if column == 0 and token.type == "td_close":
                    assert cell
                    cell.tag = token.tag = "th"
                    cell.attrSet("scope", "row")
                column, cell = column + 1, None
            case "inline":
                text = inline(token, images)
                if cell:
                    if cell.tag == "th" and text.endswith(NOT_COMPARABLE):
                        grey.add(column)
                    if column in grey:
                        cell.attrSet("class", "grey")
                    if text.startswith(BELOW) and row:
                        row.attrSet("class", "below")
                    text = small_print(text) if cell.type == "td_open" else text
                token.children = [Token("html_inline", "", 0, content=text)]
    return RENDERER.render(tokens, MARKDOWN.options, {})


def inline(token: Token, images: Mapping[str, str]) -> str:
    """HTML of a line: figures with their description under them, verdicts in colour."""
    children = token.children or []
    for child, following in zip_longest(children, children[1:]):
        match child.type:
            case "text":
                child.content = child.content.replace(" ± ", "\u00a0±\u00a0")
            case "html_inline":
                child.type = "text"
            case "strong_open" if following:
                said = following.content.lower()
                if kind := CLASSES.get(said) or CLASSES.get(said.split()[-1].strip("()")):
                    child.attrSet("class", kind)
            case "image":
                child.attrSet("src", images[str(child.attrs["src"]).removeprefix("figures/")])
    text = RENDERER.renderInline(children, MARKDOWN.options, {})
    picture = children[0] if children and children[0].type == "image" else None
    return f"{text}<small>{escape(picture.content)}</small>" if picture else text


def small_print(cell: str) -> str:
    found = LEADING.fullmatch(cell)
    if not found:
        return cell
    lines = re.split(r", |(?<![tp]); ", found[2])  # &lt; and &amp; stay whole
    return f"{found[1]}<small>{'<br>'.join(lines)}</small>"


def samples(kind: str, text: str) -> str:
    shown = escape(text, quote=False)
    if kind in ("fresh", "pinned"):
        shown = "\n".join(map(coloured, text.splitlines()))
    return f'<pre class="{kind}">{shown}</pre>\n'


def character_kinds(sequence: str) -> list[str]:
    """What each character is: prompt, blank, noise, target (the prompt's letter) or other."""
    kinds = {"_": "blank", "!": "noise", sequence[0]: "target"}
    body = sequence[PROMPT:]
    return ["prompt"] * PROMPT + [kinds.get(character, "other") for character in body]


def coloured(sequence: str) -> str:
    """A sequence of the target task; characters of one kind are marked together."""
    marked = groupby(zip(character_kinds(sequence), sequence, strict=True), lambda pair: pair[0])
    return "".join(
        f'<i class="{kind}">{escape("".join(c for _, c in pairs))}</i>' for kind, pairs in marked
    )


# All arms' generations, for a page on which readers choose what to look at.


def explorer_families(analysis: Analysis) -> list[dict[str, Any]]:
    """Arms with the same prompts: by data, and by prompts where contexts differ."""
    families = []
    for data, arms in analysis.by_data.items():
        shown = (arm for arm in arms if arm.first.details.generations)
        groups = grouped(shown, lambda arm: tuple(g.prompt for g in arm.first.details.generations))
        for prompts, group in groups.items():
            models = ", ".join(sorted({arm.run.model for arm in group}))
            families.append(
                {
                    "name": data if len(groups) == 1 else f"{data} ({models})",
                    "target": group[0].first.on_target,
                    "prompts": [*map(printable, prompts)],
                    "arms": [*map(generations, group)],
                }
            )
    return families


def generations(arm: Arm) -> dict[str, Any]:
    """An arm's generations by its first seed, without control characters."""
    several = f", the first of {count(len(arm.runs), 'seed')}" if len(arm.runs) > 1 else ""
    readable = [
        {
            "prompt": printable(g.prompt),
            "fresh": [*map(printable, g.fresh)],
            "pinned": [[*map(printable, texts)] for texts in g.pinned],
        }
        for g in arm.first.details.generations
    ]
    return {
        "title": arm.title,
        "seeds": f"by seed {arm.run.seed}{several}",
        "generations": readable,
    }
