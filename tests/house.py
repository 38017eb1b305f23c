"""Figures of the code: sizes of files and functions, and which folders import which."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

from tests import ROOT

PRODUCT = ("ftmodel", "pipelines", "perf", "hydra_plugins", "examples")
NEEDS_THE_NAME = re.compile(r"Of\b|.*\b(that|those|is|are) of\b|.*\bof these\b", re.DOTALL)


@dataclass(frozen=True)
class Source:
    path: Path

    @property
    def name(self) -> str:
        """The dotted name of the module."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def package(self) -> str:
        """Its package, folders within included; or itself, in the top folder beside packages."""
        return "/".join(self.path.parts[:2])

    @cached_property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return [*ast.walk(ast.parse(self.text))]

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def functions(self) -> int:
        return sum(isinstance(node, ast.FunctionDef) for node in self.nodes)

    @property
    def import_lines(self) -> int:
        found = (node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)

    @property
    def docstrings(self) -> list[str]:
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        found = (ast.get_docstring(node) for node in self.nodes if isinstance(node, kinds))
        return [text for text in found if text]

    def imported(self) -> Iterator[str]:
        """Dotted names that it imports anywhere: of modules, or of what is in them."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0 and node.module, f"{self.path}: a relative import"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(*folders: str) -> list[Source]:
    """The files of code below folders of the project."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Source(path.relative_to(ROOT)) for path in paths]


def packages(files: list[Source]) -> dict[str, set[str]]:
    """For each package, the packages that it imports. Names for other programs, in an
    __init__.py, belong to none.
    """
    package_of = {file.name: file.package for file in files if file.path.name != "__init__.py"}
    graph: dict[str, set[str]] = {package: set() for package in package_of.values()}
    for name, imported in modules(files).items():
        if name in package_of:
            graph[package_of[name]] |= {package_of[each] for each in imported & package_of.keys()}
    return {package: others - {package} for package, others in graph.items()}


def modules(files: list[Source]) -> dict[str, set[str]]:
    """For each module, the modules of ours that it imports anywhere."""
    names = {file.name for file in files}
    return {
        file.name: {found for each in file.imported() if (found := module_in(names, each))}
        - {file.name}
        for file in files
    }


def module_in(names: set[str], imported: str) -> str:
    """The module of an import, of which the last part may be a name in it; "" if it is not ours."""
    package = imported.rpartition(".")[0]
    return imported if imported in names else package if package in names else ""


def circle(graph: dict[str, set[str]]) -> list[str]:
    """What imports one another in a circle, [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [*error.args[1]]
    return []


def incomplete_docstrings(files: list[Source]) -> list[str]:
    """Docstrings that begin with "Of", or hang on "that of" and the like."""
    return [f"{file.path}: {text}" for file in files for text in file.docstrings
            if NEEDS_THE_NAME.match(text)]  # fmt: skip


def row(name: str, files: list[Source]) -> str:
    lines = sum(file.lines for file in files)
    functions = sum(file.functions for file in files)
    imports = sum(file.import_lines for file in files)
    return (
        f"{name:<24} {len(files):5} {lines:7} {median(file.lines for file in files):6.0f} "
        f"{1000 * functions / lines:9.0f} {imports / lines:8.1%}"
    )


def main() -> None:
    product, tests = sources(*PRODUCT), sources("tests")
    print(f"{'folder':<24} files   lines median per 1,000  imports")
    folders = sorted(
        {"/".join(file.path.parts[:2]) for file in product if len(file.path.parts) > 2}
    )
    for folder in folders:
        print(row(folder, [file for file in product if file.path.is_relative_to(folder)]))
    print(row("product", product))
    print(row("tests", tests))
    graph = packages(product)
    print(f"packages {len(graph)}, imports between them {sum(map(len, graph.values()))}")
    print(f"circles: of packages {circle(graph)}, of modules {circle(modules(product))}")
    words = re.compile(r"\.(noise_width|random_prefix)\b")
    reads = {file.path: len(words.findall(file.text)) for file in product}
    print(f"reads of noise_width and random_prefix: {sum(reads.values())} in "
          f"{sum(map(bool, reads.values()))} files")  # fmt: skip
    print(f"docstrings to rewrite: {len(incomplete_docstrings(product))}")


if __name__ == "__main__":
    main()
