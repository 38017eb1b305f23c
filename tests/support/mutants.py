"""Mutants: mistakes that are easy to make, each declared above the test that must notice it."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from tests import ROOT

Test = TypeVar("Test", bound=Callable)
PRODUCT = (
    *(f"{package}/**/*.py" for package in ("ftmodel", "hydra_plugins", "perf", "pipelines")),
    *("pipelines/**/*.jinja", "dvc.yaml", ".dvcignore", "Makefile"),
)
CHANGE = re.compile("«([^→]*)→([^»]*)»")


def rejects(*change_and_name: str, file: str = "", case: str = "") -> Callable[[Test], Test]:
    """Declare that a test fails once a text, which the product contains once, is changed.

    The first argument is the text with its changes marked, as in ``"x.mean(«0→1», keepdim=True)"``
    (or two arguments: the text, and what replaces it), the last one is the mistake's name.
    ``file``, relative to ftmodel/ or pipelines/, says which one is changed where others contain
    the text too. ``case`` is one case of a parametrized test, where the others need not be run.
    All arguments are literals: mutants are read from the source of the tests, without importing it.
    """
    return lambda test: test


def old_and_new(change: str, *new: str) -> tuple[str, str]:
    if new:
        return change, new[0]
    return CHANGE.sub(r"\1", change), CHANGE.sub(r"\2", change)


@dataclass(frozen=True)
class Mutant:
    """What `rejects` declares; paths are relative to the project's folder."""

    path: str
    old: str
    new: str
    name: str
    test_file: str
    function: str
    case: str = ""

    @property
    def test(self) -> str:
        """The id of the test, as pytest takes it."""
        return f"{self.test_file}::{self.function}" + f"[{self.case}]" * bool(self.case)


@cache
def product() -> dict[str, str]:
    """The texts that mutants change, by path."""
    files = [file for glob in PRODUCT for file in ROOT.glob(glob)]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def path_of(old: str, file: str = "") -> str:
    texts = product().items()
    counts = {path: text.count(old) for path, text in texts if path.endswith(file)}
    found = {path: n for path, n in counts.items() if n}
    assert [*found.values()] == [1], f"to be replaced, {old!r} must occur once, not {found}"
    return min(found)


def declared() -> list[Mutant]:
    """All mutants, in the order of their tests."""
    mutants = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        test_file = file.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "rejects":
                    *change, name = map(ast.literal_eval, call.args)
                    old, new = old_and_new(*change)
                    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
                    path, case = path_of(old, given.get("file", "")), given.get("case", "")
                    mutants.append(Mutant(path, old, new, name, test_file, node.name, case))
    return mutants
