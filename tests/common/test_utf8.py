"""Everything is written and read as UTF-8, whatever the locale is."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.support.mutants import rejects

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipelines", "ftmodel", "hydra_plugins", "perf")
PRINTS = r"""
import sys
from pipelines.host import errors

def main():
    print("\u03ba", sys.argv[1])
    raise errors.UserError("\u03ba of " + sys.argv[1])

errors.run(main)
"""


def calls_by_locale(source):
    """Lines of calls that read or write text in the locale's encoding."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function, is_method = node.func, isinstance(node.func, ast.Attribute)
        name = function.attr if is_method else getattr(function, "id", "")
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if "encoding" in keywords:
            continue
        if name in ("read_text", "write_text"):
            by_locale = getattr(function.value, "id", "") != "self"
        elif name == "open" and not is_method:
            mode = node.args[1] if len(node.args) > 1 else keywords.get("mode", ast.Constant("r"))
            by_locale = "b" not in getattr(mode, "value", "")
        else:
            by_locale = "text" in keywords and name in ("run", "Popen", "check_output")
        if by_locale:
            yield node.lineno


def test_no_text_is_read_or_written_in_the_encoding_of_the_locale():
    assert [*calls_by_locale(b"open('a')\nopen('b', 'rb')\npath.read_text()")] == [1, 3]
    programs = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    found = {str(path): [*calls_by_locale(path.read_bytes())] for path in programs}
    assert len(found) > 100 and {path: lines for path, lines in found.items() if lines} == {}


@rejects('errors.use_utf8: «encoding="utf-8",→»', "what is printed in the locale's encoding")
def test_arguments_and_what_is_printed_are_utf_8():
    command = [sys.executable, "-c", PRINTS, "λ"]
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=env, capture_output=True)
    assert result.stdout.decode() == "κ λ\n"
    assert result.stderr.decode() == "error: κ of λ\n" and result.returncode == 2
