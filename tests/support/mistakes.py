"""Mistakes made by rule: another operator, comparison, number or truth value, by Cosmic Ray."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.plugins import get_operator

from tests import ROOT

BINARY = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "FloorDiv": "Mul", "Mod": "Mul"}
BINARY |= {"Pow": "Mul", "LShift": "RShift", "RShift": "LShift"}
BINARY |= {"BitAnd": "BitOr", "BitOr": "BitAnd", "BitXor": "BitAnd"}
COMPARISON = {"Eq": ("NotEq",), "NotEq": ("Eq",), "Is": ("IsNot",), "IsNot": ("Is",)}
COMPARISON |= {"Lt": ("LtE", "Gt"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "Lt"), "GtE": ("Gt", "Lt")}
OPERATORS = (
    *(f"ReplaceBinaryOperator_{old}_{new}" for old, new in BINARY.items()),
    *(f"ReplaceComparisonOperator_{old}_{new}" for old in COMPARISON for new in COMPARISON[old]),
    *("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub", "NumberReplacer"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("AddNot", "ZeroIterationForLoop", "ReplaceBreakWithContinue"),
)
NO_RESULT = {  # arguments: lengths that are asserted, what is on the screen when, layout
    ("zip", "strict"),
    ("print", "flush"),
    ("Bar", "leave"),
    ("Bar", "delay"),
    ("Bar", "unit_scale"),
    ("dumps", "indent"),
}


@dataclass(frozen=True)
class Mistake:
    """A changed module, and where it differs from what is there."""

    path: str
    line: int  # from 1
    before: str  # that line
    after: str
    number: int  # among those of the same module whose lines read the same
    text: str  # the whole module

    @property
    def key(self) -> str:
        """Stays the same while other lines of the module change."""
        words = f"{self.path}\n{self.before}\n{self.after}\n{self.number}"
        return sha256(words.encode()).hexdigest()[:16]


def asks_for_main(node: ast.If) -> bool:
    """Whether a condition is about the module's own ``__name__``, and not that of a class."""
    return "__name__" in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}


def behaviour(source: str) -> str | None:
    """The syntax tree without annotations, decorators of classes, assertions and the arguments in
    NO_RESULT, on which no result depends, and without the test whether a module is the program,
    which only a process of its own can pass. None if the source is not Python, which an operator
    may make of it.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        for name in {"annotation", "returns"} & {*node._fields}:
            setattr(node, name, None)
        if isinstance(node, ast.ClassDef):
            node.decorator_list = []
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and asks_for_main(node)):
            node.test = ast.Constant(True)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            node.keywords = [each for each in node.keywords if (name, each.arg) not in NO_RESULT]
    return ast.dump(tree)


def changed_texts(tree: Any) -> Iterator[str]:
    """The module with one change each. Operators change a node or its children in place, or
    return another node; the tree is put back afterwards.
    """
    nodes = [*ast_nodes(tree)]
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        for node in nodes:
            for i, _ in enumerate([*operator.mutation_positions(node)]):
                children = [*getattr(node, "children", [])]
                values = [(n, n.value) for n in (node, *children) if hasattr(n, "value")]
                other = operator.mutate(node, i)
                if other is not node:
                    siblings = node.parent.children
                    place = next(k for k, sibling in enumerate(siblings) if sibling is node)
                    siblings[place] = other
                yield tree.get_code()
                if other is not node:
                    siblings[place] = node
                if children:
                    node.children[:] = children
                for leaf, value in values:
                    leaf.value = value


def mistakes(path: str) -> Iterator[Mistake]:
    """What the operators make of a module."""
    source = (ROOT / path).read_text(encoding="utf-8")
    lines, same, alike = source.splitlines(), behaviour(source), Counter[tuple[str, str]]()
    for text in changed_texts(get_ast(source)):
        if behaviour(text) not in (same, None):
            pairs = enumerate(zip(lines, text.splitlines(), strict=False), 1)
            line, pair = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
            before, after = (part.strip() for part in pair)
            alike[before, after] += 1
            yield Mistake(path, line, before, after, alike[before, after], text)


@cache
def statements(path: str) -> dict[int, range]:
    """The lines of the innermost statement to which a line belongs; of a compound statement,
    those before its body.
    """
    found: dict[int, range] = {}
    # parents come before their children, whose lines replace theirs
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            assert node.end_lineno
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno
            lines = range(node.lineno, max(end, node.lineno) + 1)
            found |= dict.fromkeys(lines, lines)
    return found
