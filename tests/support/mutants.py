"""Mutants: mistakes that are easy to make, each declared above the test that must notice it."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests import ROOT

Test = TypeVar("Test", bound=Callable)


def rejects(file: str, old: str, new: str, name: str, case: str = "") -> Callable[[Test], Test]:
    """Declare that a test fails once ``old``, which ``file`` contains once, is replaced by ``new``.

    ``file`` is relative to ftmodel/, pipelines/ or the project's folder. ``case`` is one case of a
    parametrized test, where the others need not be run. All arguments are literals: mutants are
    read from the source of the tests, which is not imported for it.
    """
    return lambda test: test


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


def project_path(file: str) -> str:
    places = (Path(package, file) for package in ("ftmodel", "pipelines", ""))
    [path] = [place.as_posix() for place in places if (ROOT / place).is_file()]
    return path


def declared() -> list[Mutant]:
    """All mutants, in the order of their tests."""
    mutants = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        test_file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "rejects":
                    file, *texts = map(ast.literal_eval, call.args)
                    case = [ast.literal_eval(keyword.value) for keyword in call.keywords]
                    mutants.append(Mutant(project_path(file), *texts, test_file, node.name, *case))
    return mutants
