"""Blocks as Markdown and as HTML, and what they quote of docs/report.md."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pipelines import report
from pipelines.host.errors import UserError
from pipelines.report.blocks import (
    MISSING,
    Cell,
    Column,
    Name,
    Picture,
    Samples,
    Section,
    Table,
    Text,
    Verdict,
    escaped,
    explained,
    explanations,
    figures,
    fold,
    markdown_of,
    section_markdown,
    side_by_side,
)
from pipelines.report.html import character_kinds, html, section_html
from pipelines.report.page import TEMPLATES
from tests.support.mutants import rejects

HOSTILE = "<script>x()</script>\n\n<img src=x onerror=x()> ```\n````\n</pre></details>\x1b"


def page(*blocks, **images):
    return html(blocks, images)


def test_a_section_is_found_by_its_name():
    topic = Section("topic", "Data", [Text("Words.")])
    said = markdown_of(explained("Data"))
    assert section_markdown(topic) == f"## Data\n<!-- topic -->\n\n{said}\n\nWords."
    assert section_html(topic, {}).startswith('<h2 id="topic">Data</h2>\n<!-- topic -->\n<p>')


def test_every_title_that_the_report_quotes_is_in_its_page():
    """Titles of sections, and of the parts that `explained` names."""
    (folder,) = report.__path__
    code = [path.read_text() for path in Path(folder).rglob("*.py")]
    quoted = [re.findall(r'(?:explained|titled|Section)\((?:"\w+", )?"([^"]+)"', c) for c in code]
    titles = {title for each in quoted for title in each}
    assert len(titles) > 30 and titles <= explanations().keys()
    with pytest.raises(UserError, match=r"docs/report\.md has no title 'Renamed'"):
        explained("Renamed")


def test_columns_of_numbers_end_on_the_right_and_rows_have_a_head_and_may_be_below_others():
    rows = [[Name("a"), Cell("−0.5", "± 0.1"), "1 of b"], [Name("b", below=True), MISSING, "c"]]
    table = Table(["arm", "bound", "kind"], rows)
    head, sides, first, *_ = markdown_of([table]).splitlines()
    assert (head, sides) == ("| arm | bound | kind |", "| --- | ---: | --- |")
    assert first == "| a | −0.5 ± 0.1 | 1 of b |"
    made = page(table)
    assert '<tr>\n<th scope="row">a</th>' in made and "<th>kind</th>" in made
    assert made.count('<tr class="below">\n<th scope="row">↳ b</th>') == 1


def test_figures_are_found_within_other_blocks_and_have_their_description_below():
    deep, shown = (Picture(name, Figure(), f"What {name} shows") for name in ("deep", "shown"))
    blocks = [shown, fold("More", [side_by_side([[deep]])])]
    assert [each.name for each in figures(blocks)] == ["shown", "deep"]
    assert markdown_of([shown]) == "![What shown shows](figures/shown.png)"
    made = page(*blocks, **{"shown.png": "data:1", "deep.png": "data:2"})
    assert '<img src="data:1" alt="What shown shows"' in made
    assert "<figcaption>What shown shows</figcaption>" in made
    assert "<details><summary>More</summary>" in made and "data:2" in made


@rejects('html.words_html: «child.type = "text"→pass»', "HTML within a line kept on a page")
def test_of_html_nothing_but_ours_stays():
    for text in (HOSTILE, "a <b onclick=x()>c</b>", "<details open ontoggle=x()>", "<div\nid=x>"):
        made = page(Text(text), Table(["arm", "x"], [["a", text]]))
        made = made.replace('<div class="wide">', "")
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
    opening, *written, closing = markdown_of([Samples(kind, text)]).splitlines()
    assert opening == f"{closing}{kind}" and set(closing) == {"`"}
    assert not any(line.startswith(closing) for line in written), "it ends its own fence"


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
    kl = Column("KL", comparable=False)
    table = Table(["arm", kl, "bound"], [["a", Cell("1.0"), Cell("2.0")]])
    made = page(table, Table(["arm", "b"], [["c", "d"]]))
    grey = 'style="text-align:right" class="grey">'
    assert f"<th {grey}KL (not comparable)</th>" in made and f"<td {grey}1.0</td>" in made
    assert made.count("grey") == 2


@pytest.mark.parametrize(
    ("entry", "markdown", "shown"),
    [
        (Cell("0.7", "± 0.1", ("spread 0.2",)), "0.7 ± 0.1, spread 0.2",
         "0.7<small>±\u00a00.1<br>spread 0.2</small>"),
        (Cell("−0.1", "± 0.2", (), Verdict("none", reason="0.1, one seed")),
         "−0.1 ± 0.2: none (0.1, one seed)",
         "−0.1<small>±\u00a00.2: none (0.1<br>one seed)</small>"),
        (Cell("0.1", verdict=Verdict("lower", True, reason="0.1")), "0.1: **lower** (0.1)",
         '0.1<small><strong class="better">lower</strong> (0.1)</small>'),
        (Cell("0.4", "", (), Verdict("better", True, "+3.00 %")), "0.4; **+3.00 % better**",
         '0.4<small><strong class="better">+3.00 % better</strong></small>'),
        (Cell("0.4", "", (), Verdict("not decided", False, "+3.00 %")),
         "0.4; +3.00 % (not decided)", "0.4<small>+3.00 % (not decided)</small>"),
        (Cell("0.4", "", (), Verdict("", change="+3.00 %")), "0.4; +3.00 %",
         "0.4<small>+3.00 %</small>"),
        (Cell("1.5 to 2.5"), "1.5 to 2.5", "1.5 to 2.5"),
        (Cell("p < 0.001"), "p < 0.001", "p &lt; 0.001"),
        (Verdict("lower", True), "**lower**", '<strong class="better">lower</strong>'),
        (Verdict("Did not come true", True), "**Did not come true**",
         '<strong class="worse">Did not come true</strong>'),
        (Verdict("Not shown", True), "**Not shown**", "<strong>Not shown</strong>"),
        (Name("free", "1 of 2 collapsed"), "free **(1 of 2 collapsed)**",
         'free <strong class="tag">(1 of 2 collapsed)</strong>'),
        (Verdict("not decided: the bound is loose"), "not decided: the bound is loose",
         "not decided: the bound is loose"),
        ("a_b, **0.5 ± 0.1**", "a_b, **0.5 ± 0.1**",
         "a_b, <strong>0.5\u00a0±\u00a00.1</strong>"),
    ],
)  # fmt: skip
def test_what_follows_a_cells_number_is_small_print(entry, markdown, shown):
    assert str(entry) == markdown
    assert f">{shown}</td>" in page(Table(["arm", "x"], [["a", entry]]))
