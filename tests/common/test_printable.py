"""What others wrote reaches a terminal or a page as text, never as a command to it."""

import html

import pytest

from pipelines.host import errors
from pipelines.host.console import say
from pipelines.host.errors import printable
from pipelines.report.blocks import escaped
from tests.support.mutants import rejects

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\rd\x08e\x9bf\u202eg\x00h\udcffi"


def test_control_characters_are_shown_not_sent():
    shown = printable(HOSTILE)
    assert [c for c in shown if not c.isprintable()] == []
    assert [c for c in shown if c.isalpha()] == [c for c in HOSTILE if c.isalpha()]
    assert printable("Größe κ ∆ 日本\n\tx") == "Größe κ ∆ 日本\n\tx"


@rejects("errors.run: «printable(→»str(error)«)→»", "a message's control characters")
def test_messages_are_of_one_line_that_a_terminal_can_be_shown(capsys):
    def fail():
        raise errors.UserError(f"{HOSTILE}\nnext")

    with pytest.raises(SystemExit):
        errors.run(fail)
    say(HOSTILE)
    said = capsys.readouterr().err
    assert said.count("\n") == 2 and said.startswith("error: a\ufffd]0;title\ufffdb")
    assert printable(said) == said


@rejects("blocks.escaped: «html.escape(text, quote=False)→text»", "a text as HTML in Markdown")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>x()</script> & <b>", "&lt;script&gt;x()&lt;/script&gt; &amp; &lt;b&gt;"),
        ("*bold* _it_ `code` ~~no~~", r"\*bold\* \_it\_ \`code\` \~\~no\~\~"),
        ("[link](http://x) ![p](y)", r"\[link\](http://x) \!\[p\](y)"),
        ("# a | b \\ $x$", r"\# a \| b \\ \$x\$"),
        ("one\n\n# two\x1b[31m", r"one \# two" + "\ufffd\\[31m"),
    ],
)
def test_markdown_and_html_are_shown_as_text(text, shown):
    assert escaped(text) == shown
    words = html.unescape(shown).replace("\\\\", "\0").replace("\\", "").replace("\0", "\\")
    assert words == " ".join(printable(text).split())
