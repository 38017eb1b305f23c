"""Blocks of a report as HTML, and all arms' generations as data for a page to look at them.

markdown-it-py makes HTML of texts, and of a table's words; HTML within these is shown as text.
Tables, figures and samples are written here. A page is complete without the repository: the pages
of docs/ that define what it shows are in it, and links lead there.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from itertools import groupby, pairwise
from math import inf
from posixpath import dirname, normpath
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token

from ftmodel.synthetic.target import PROMPT
from pipelines.compare.arms import Arm, grouped
from pipelines.host.errors import printable
from pipelines.host.files import ROOT
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import (
    Block,
    Cell,
    Column,
    Entry,
    Group,
    Name,
    Picture,
    Samples,
    Section,
    Table,
    Text,
    Verdict,
    anchor,
)
from pipelines.report.wording import count

MARKDOWN = MarkdownIt("commonmark").enable("table")
DOCS = "../../docs/"  # from a report's folder
MOSTLY = 0.5  # of generations that must be valid
CLASSES = {  # of verdicts
    **dict.fromkeys(("lower", "better", "came true"), "better"),
    **dict.fromkeys(("higher", "worse", "did not come true"), "worse"),
}


def section_html(section: Section, images: Mapping[str, str]) -> str:
    title = f'<h2 id="{section.name}">{escape(section.title)}</h2>\n<!-- {section.name} -->\n'
    return title + html(section.body, images)


def html(blocks: Iterable[Block], images: Mapping[str, str]) -> str:
    """Blocks as HTML; ``images`` are the figures as data URIs, by file name."""
    return "".join(block_html(block, images) for block in blocks)


def block_html(block: Block, images: Mapping[str, str]) -> str:
    match block:
        case Text(markdown):
            return words_html(MARKDOWN.parse(markdown))
        case Table():
            return table_html(block)
        case Picture():
            return picture_html(block, images)
        case Samples(kind, text):
            return samples(kind, f"{printable(text)}\n")
        case Group(opening, inner, closing):
            return f"{opening}\n{html(inner, images)}{closing}\n"
    raise TypeError(block)


def picture_html(picture: Picture, images: Mapping[str, str]) -> str:
    file, words = f"{picture.name}.png", picture.description
    narrow = ""
    if picture.narrow:
        narrow = f'<source media="(max-width: 50rem)" srcset="{images[f"narrow {file}"]}" />'
    inches = f"--inches: {picture.figure.get_figwidth():g}"
    image = f'<img src="{images[file]}" alt="{escapeHtml(words)}" style="{inches}" />'
    return (
        f'<figure class="picture"><div class="wide"><picture>{narrow}{image}</picture></div>'
        f"<figcaption>{escape(words)}</figcaption></figure>\n"
    )


def words_html(tokens: Sequence[Token]) -> str:
    """Parsed Markdown as HTML. HTML in it is no markup, a number stays beside its error, and links
    lead out of the page only to other hosts.
    """
    for token in tokens:
        if token.type == "html_block":
            token.content = escape(token.content)
        leads_to = ""
        for child in token.children or []:
            if child.type == "html_inline":
                child.type = "text"
            elif child.type == "text":
                child.content = unbroken(child.content)
            elif child.type == "link_open" and str(child.attrs["href"]).startswith(DOCS):
                path, _, place = normpath(str(child.attrs["href"])).partition("#")
                path = path.removeprefix("../../")
                if path in definition_pages():
                    child.attrs["href"] = f"#{path}/{place}".removesuffix("/")
                else:  # say where it is
                    child.type, child.tag, leads_to = "text", "", path
            elif child.type == "link_close" and leads_to:
                child.type, child.tag, child.content = "text", "", f" ({leads_to})"
                leads_to = ""
    return str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))


@cache
def definition_pages() -> list[str]:
    """The pages of docs/ that define what a report shows."""
    pages = ["docs/measurement.md", "docs/glossary.md"]
    folder = ROOT / "docs/measurement"
    return pages + sorted(path.relative_to(ROOT).as_posix() for path in folder.glob("*.md"))


def definitions_html() -> str:
    """The pages that define what a report shows, each in a fold. A heading's id is the page's path,
    with its anchor below the page's title.
    """
    folds = []
    for page in definition_pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        tokens = MARKDOWN.parse(text)
        title = ""
        for token, inline in pairwise(tokens):
            if token.type == "heading_open":
                place = f"/{anchor(inline.content)}" if title else ""
                title = title or inline.content
                token.attrs["id"] = page + place
            if token.type.startswith("heading"):  # they stand below a heading of the second level
                token.tag = f"h{int(token.tag[1]) + 2}"
            for child in token.children or []:
                if child.type == "link_open" and ":" not in str(child.attrs["href"]):
                    place = page if str(child.attrs["href"])[0] == "#" else f"{dirname(page)}/"
                    child.attrs["href"] = f"../../{place}{child.attrs['href']}"
        folds.append(
            f"<details><summary>{escape(title)}</summary>\n{words_html(tokens)}</details>\n"
        )
    return "".join(folds)


def unbroken(words: str) -> str:
    return words.replace(" ± ", "\u00a0±\u00a0")


def table_html(table: Table) -> str:
    grey = [isinstance(head, Column) and not head.comparable for head in table.head]
    sides = [' style="text-align:right"' if numeric else "" for numeric in table.numeric]
    looks = [
        side + (' class="grey"' if is_grey else "")
        for side, is_grey in zip(sides, grey, strict=True)
    ]
    heads = [
        f"<th{look}>{entry_html(str(head))}</th>\n"
        for look, head in zip(looks, table.head, strict=True)
    ]
    lines = ['<div class="wide"><table>\n<thead>\n<tr>\n', *heads, "</tr>\n</thead>\n<tbody>\n"]
    for name, *entries in table.rows:
        below = isinstance(name, Name) and name.below
        lines.append('<tr class="below">\n' if below else "<tr>\n")
        plain = ' class="plain"' if isinstance(name, Verdict) else ""
        lines.append(f'<th{looks[0]}{plain} scope="row">{entry_html(name)}</th>\n')
        lines += [
            f"<td{look}>{entry_html(entry)}</td>\n"
            for look, entry in zip(looks[1:], entries, strict=True)
        ]
        lines.append("</tr>\n")
    return "".join([*lines, "</tbody>\n</table></div>\n"])


def entry_html(entry: Entry) -> str:
    match entry:
        case Cell():
            return cell_html(entry)
        case Verdict():
            return verdict_html(entry)
        case Name(words, tag, below):
            said = escape(f"↳ {words}" if below else words)
            return f'{said} <strong class="tag">({tag})</strong>' if tag else said
    return words_html(MARKDOWN.parseInline(entry))


def cell_html(cell: Cell) -> str:
    """A number; what else is said of it stands below in small print."""
    lines = [note for note in (cell.error, *cell.notes) if note]
    small = "<br>".join(unbroken(f" {escape(line)}").lstrip() for line in lines)
    if cell.verdict:
        small += (": " if cell.verdict.reason else "<br>") if small else ""
        small += verdict_html(cell.verdict).replace(", ", "<br>")
    value = escape(cell.value)
    return f"{value}<small>{small}</small>" if small else value


def verdict_html(verdict: Verdict) -> str:
    if not verdict.counts:
        return escape(str(verdict))
    kind = CLASSES.get(verdict.word.lower())
    opening = f'<strong class="{kind}">' if kind else "<strong>"
    reason = f" ({escape(verdict.reason)})" if verdict.reason else ""
    return f"{opening}{escape(verdict.emphasized)}</strong>{reason}"


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
                    "first": min(range(len(group)), key=lambda i: left_by_z(group[i])),
                }
            )
    return families


def left_by_z(arm: Arm) -> float:
    """How much of what varies between generations of the first seed is left when z is pinned; 1 if
    it was not measured or most generations are invalid. Infinite for an arm without z.
    """
    found = arm.first.evaluation
    if not arm.first.details.generations[0].pinned:
        return inf
    if found.fresh and found.pinned and found.fresh.valid > MOSTLY and found.fresh.spread:
        return found.pinned.spread / found.fresh.spread
    if found.steering and found.steering.ratio:
        return 1 / found.steering.ratio.mean
    return 1.0


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
