"""Blocks as Markdown, and that Markdown as HTML."""

import pytest
from matplotlib.figure import Figure

from pipelines.report import blocks
from pipelines.report.blocks import (
    NOT_COMPARABLE,
    Picture,
    Samples,
    Section,
    Table,
    Text,
    escaped,
    figures,
    fold,
    markdown_of,
    side_by_side,
)
from pipelines.report.html import character_kinds, html
from pipelines.report.page import TEMPLATES
from tests.support.mutants import rejects

HOSTILE = "<script>x()</script>\n\n<img src=x onerror=x()> ```\n````\n</pre></details>\x1b"


def page(*blocks, **images):
    return html(markdown_of(blocks), images)


def test_a_section_is_found_by_its_name():
    topic = Section("topic", "A topic", [Text("Words.")])
    link = "[How to read it](../../docs/report.md#a-topic)"
    assert blocks.section_markdown(topic) == f"## A topic\n<!-- topic -->\n\n{link}\n\nWords."
    assert '<h2 id="topic">A topic</h2>' in html(blocks.section_markdown(topic), {})
    assert "<!--" not in html("<!-- other -->", {}).replace("<!-- other -->", "")


def test_columns_of_numbers_end_on_the_right_and_rows_have_a_head_and_may_be_below_others():
    rows = [["a", "−0.5 ± 0.1", "of b"], ["↳ b", "–", "1 of c"]]
    table = Table(["arm", "bound", "kind"], rows)
    head, sides, first, *_ = markdown_of([table]).splitlines()
    assert (head, sides) == ("| arm | bound | kind |", "| --- | ---: | --- |")
    assert first == "| a | −0.5 ± 0.1 | of b |"
    made = page(table)
    assert '<tr>\n<th scope="row">a</th>' in made and "<th>kind</th>" in made
    assert made.count('<tr class="below">\n<th scope="row">↳ b</th>') == 1


def test_figures_are_found_within_other_blocks_and_have_their_description_below():
    deep, shown = (Picture(name, Figure(), f"What {name} shows") for name in ("deep", "shown"))
    blocks = [shown, fold("More", [side_by_side([[deep]])])]
    assert [each.name for each in figures(blocks)] == ["shown", "deep"]
    assert markdown_of([shown]) == "![What shown shows](figures/shown.png)"
    made = page(*blocks, **{"shown.png": "data:1", "deep.png": "data:2"})
    assert '<img src="data:1" alt="What shown shows" /><small>What shown shows</small>' in made
    assert "<details><summary>More</summary>" in made and "data:2" in made


@rejects('html.inline: «child.type = "text"→pass»', "HTML within a line kept on a page")
def test_of_html_nothing_but_ours_stays():
    for text in (HOSTILE, "a <b onclick=x()>c</b>", "<details open ontoggle=x()>", "<div\nid=x>"):
        made = html(text, {})
        assert not any(tag in made for tag in ("<script", "<img", "<b ", "<details", "<div"))


@rejects("blocks.block_markdown: «max(3, longest + 1)→3»", "a text that ends its own fence")
@rejects("html.samples: «escape(text, quote=False)→text»", "what a model writes put on a page")
@pytest.mark.parametrize("kind", ["sample", "fresh"])
def test_what_a_model_writes_is_shown_as_it_is(kind):
    text = HOSTILE if kind == "sample" else "A>__<b>A\n``` B"
    made = page(Samples(kind, text), Text("After."))
    assert made.startswith(f'<pre class="{kind}">') and made.endswith("</pre>\n<p>After.</p>\n")
    assert made.count("<pre") == made.count("</pre>") == 1
    assert "<script" not in made and "<b>" not in made and "\x1b" not in made


def test_text_of_others_in_a_cell_or_paragraph_stands_for_itself():
    cell = escaped(HOSTILE + " a|b **c** [d](e)")
    made = page(Table(["x"], [[cell]]), Text(cell))
    assert made.count("<td") + made.count('<th scope="row"') == 1
    assert not any(tag in made for tag in ("<script", "<img", "<strong", "<a "))
    template = TEMPLATES.get_template("explorer.html.jinja")
    assert HOSTILE not in template.render(title=HOSTILE, families=[])


def test_sequences_are_coloured_by_kind():
    kinds = ["prompt", "prompt", "blank", "target", "noise", "other"]
    assert character_kinds("B>_B!C") == kinds
    made = page(Samples("pinned", "B>__B"))
    assert '<i class="prompt">B&gt;</i><i class="blank">__</i><i class="target">B</i>' in made


def test_what_may_not_be_compared_is_grey():
    table = Table(["arm", f"KL{NOT_COMPARABLE}", "bound"], [["a", "1.0", "2.0"]])
    made = page(table, Table(["arm", "b"], [["c", "d"]]))
    grey = 'style="text-align:right" class="grey">'
    assert f"<th {grey}KL (not comparable)</th>" in made and f"<td {grey}1.0</td>" in made
    assert made.count("grey") == 2


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("0.7 ± 0.1, spread 0.2", "0.7<small>±\u00a00.1<br>spread 0.2</small>"),
        ("−0.1 ± 0.2: none (0.1, one seed)",
         "−0.1<small>±\u00a00.2: none (0.1<br>one seed)</small>"),
        ("0.4; **+3.00 % better**",
         '0.4<small><strong class="better">+3.00 % better</strong></small>'),
        ("1.5 to 2.5", "1.5 to 2.5"),
        ("1,234", "1,234"),
        ("**lower**", '<strong class="better">lower</strong>'),
        ("**Did not come true**", '<strong class="worse">Did not come true</strong>'),
        ("**(1 of 2 collapsed)**", '<strong class="tag">(1 of 2 collapsed)</strong>'),
        ("not decided: the bound is loose", "not decided: the bound is loose"),
    ],
)  # fmt: skip
def test_what_follows_a_cells_number_is_small_print(cell, shown):
    assert f">{shown}</td>" in page(Table(["arm", "x"], [["a", cell]]))
