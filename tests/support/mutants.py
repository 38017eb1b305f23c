"""Mutants: mistakes that are easy to make, each declared above the test that must notice it."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from tests import ROOT

Test = TypeVar("Test", bound=Callable)
Place = tuple[str, int, int]  # a path, and where in its text a symbol begins and ends
PRODUCT = (
    *(f"{package}/**/*.py" for package in ("ftmodel", "hydra_plugins", "perf", "pipelines")),
    *("pipelines/**/*.jinja", "dvc.yaml", ".dvcignore", "Makefile"),
)
CHANGE = re.compile("«([^→]*)→([^»]*)»")
TOKEN = re.compile(r"\w+|[^\w\s]")
GAP = r"(?:\s|#.*\n)*"  # what the formatter may change between two tokens, or a comment


def rejects(change: str, name: str, *, case: str = "") -> Callable[[Test], Test]:
    """Declare that a test fails once the product is changed, as in
    ``@rejects("FreeTransformer.encode: x«.detach()→»", "a gradient into the lower half")``.

    What is changed stands before the colon: a function, a class, a field of one, a constant or a
    module, by as much of its qualified name as tells it apart, or a file's name where that is not
    Python. Two names are best (``layers.causal_mask``): if one of them changes, the other one leads
    to the place. Then comes a text that occurs once in it, with the changes marked: whole words and
    signs, while spaces, line breaks, comments and trailing commas do not matter. ``name`` is the
    mistake's name. ``case`` is one case of a parametrized test, where the others need not be run.
    All arguments are literals: mutants are read from the source of the tests, without importing it.
    """
    return lambda test: test


@dataclass(frozen=True)
class Mutant:
    """What `rejects` declares; paths are relative to the project's folder."""

    path: str
    altered: str  # the file's text with the mistake
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


def definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes, methods, fields and constants with their qualified names."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in {n.id for target in targets for n in ast.walk(target)
                         if isinstance(n, ast.Name)}:  # fmt: skip
                yield f"{prefix}.{name}", node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{prefix}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node.body, f"{prefix}.{node.name}")
        else:  # such as `if` and `try`
            for inner in ("body", "orelse"):
                yield from definitions(getattr(node, inner, []), prefix)


def symbols_of(path: str, text: str) -> Iterator[tuple[str, Place]]:
    """Qualified names in a file, and where they are."""
    if not path.endswith(".py"):
        yield path.rpartition("/")[2], (path, 0, len(text))
        return
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    yield module, (path, 0, len(text))
    begins = [0]
    for line in text.split("\n"):
        begins.append(begins[-1] + len(line) + 1)
    for name, node in definitions(ast.parse(text).body, module):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        yield name, (path, begins[first - 1], begins[node.end_lineno] - 1)


@cache
def symbols() -> dict[str, list[Place]]:
    """Where each symbol is, by all ends of its qualified name."""
    places = defaultdict(list)
    for path, text in product().items():
        for name, place in symbols_of(path, text):
            parts = name.split(".") if path.endswith(".py") else [name]
            for i in range(len(parts)):
                places[".".join(parts[i:])].append(place)
    return places


def pattern(change: str) -> tuple[re.Pattern, list[str]]:
    """What finds a text with marked changes however it is laid out, with a group for each change;
    and what replaces the groups.
    """
    regex, before, parts = "", "", CHANGE.split(change)  # text, old, new, text, …, text
    for i, part in enumerate(parts):
        tokens = [
            rf"(?<!\w){token}(?!\w)"
            if re.match(r"\w", token)
            else (rf"(?:,{GAP})?" if token in ")]}" else "") + re.escape(token)
            for token in TOKEN.findall(part)
        ]
        found = GAP.join(tokens)
        if i % 3 == 1:
            first, last = (r"\s*" if edge.isspace() else "" for edge in (part[:1], part[-1:]))
            # what is put between two tokens stands beside the one that it is written beside
            apart = bool(regex) and not first if tokens else not regex or before[-1:].isspace()
            regex += f"{GAP * apart}({first}{found}{last})"
        elif i % 3 == 0:
            regex += GAP * bool(regex) + found
        before = part
    return re.compile(regex), parts[2::3]


def places_of(symbol: str) -> list[list[Place]]:
    """Where a symbol is. If there is none of that name, the symbol or what it is in has another
    name now: where the two parts of its name lead.
    """
    outer, _, _ = symbol.rpartition(".")
    _, _, inner = symbol.partition(".")
    names = [symbol] if symbol in symbols() else [inner, outer]
    return [symbols()[name] for name in names if name in symbols()]


def alter(place_and_change: str) -> tuple[str, str]:
    """The path of the file that holds a symbol, and its text with a change made in the symbol."""
    symbol, _, change = place_and_change.partition(": ")
    regex, new = pattern(change)
    texts, number = product(), 0
    for places in places_of(symbol):
        found = {
            (path, match.span()): match
            for path, begin, end in places
            for match in regex.finditer(texts[path], begin, end)
        }
        number = len(found)
        if number == 1:
            break
    if number != 1:
        fitting = [path for path, text in texts.items() if regex.search(text)]
        raise LookupError(
            f"{change!r} must be in {symbol} once, not {number} times; it fits into {fitting[:3]}"
        )
    [((path, _), match)] = found.items()
    altered = texts[path]
    for i in range(len(new), 0, -1):
        begin, end = match.span(i)
        altered = altered[:begin] + new[i - 1] + altered[end:]
    return path, altered


def declared() -> list[Mutant]:
    """All mutants, in the order of their tests."""
    mutants, misplaced = [], []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        test_file = file.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "rejects":
                    change, name = map(ast.literal_eval, call.args)
                    case = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
                    try:
                        mutants.append(Mutant(*alter(change), name, test_file, node.name, **case))
                    except LookupError as e:
                        misplaced.append(f"{test_file}:{call.lineno}: {e}")
    assert not misplaced, "\n".join(misplaced)
    return mutants
