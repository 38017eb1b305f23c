"""Search for mistakes in ftmodel that no test notices.

Cosmic Ray's operators make the mistakes: another operator, comparison, number or truth value. Each
is made in a copy of the project, where the tests that execute its line run, fastest first, until
one fails. Results go to mutation/<package>.jsonl; the next call tries only mistakes that survived
or whose module has changed. Tests that do not end say nothing: there may be an endless loop, or a
busy machine. tests/equivalent_mutants.yaml names changed lines that compute the same as the code,
each with the reason: they are not counted.
"""

import ast
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256

import click
import yaml
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from coverage import CoverageData

from tests import ROOT
from tests.support.bench import Bench, bench

PROCESSES = 2
PACKAGES = ["analysis", "conversion", "costs", "designs", "inference", "kernels", "model"]
PACKAGES += ["schedule", "synthetic"]  # the first is a module
TESTS = (
    *(f"tests/{package}" for package in PACKAGES if package not in ("costs", "schedule")),
    *("tests/evaluate", "tests/test_costs.py", "tests/test_scaling.py"),
)
NUMBERS = "tests/docs/test_numbers.py"  # reads constants that modules set when they are imported
MAX_SECONDS = 60.0  # of the tests of one mistake, and of what they may take longer than usual
KILLED, NO_END = "killed", "no end"
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


@dataclass
class Mistake:
    """A changed module, and where it differs from what is there."""

    path: str
    line: int  # from 1
    before: str  # that line
    after: str
    text: str  # the whole module

    @property
    def key(self) -> str:
        return sha256(f"{self.path}\n{self.text}".encode()).hexdigest()


def behaviour(source: str) -> str | None:
    """The syntax tree without annotations, decorators of classes and assertions, on which no
    result depends; None if the source is not Python, which an operator may make of it.
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
        if isinstance(node, ast.Assert):
            node.test = ast.Constant(True)
    return ast.dump(tree)


def mistakes(path: str, share: float) -> Iterator[Mistake]:
    """What the operators make of a module, or a share of that, always the same."""
    source = (ROOT / path).read_text(encoding="utf-8")
    nodes, lines, same = [*ast_nodes(get_ast(source))], source.splitlines(), behaviour(source)
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        for i in range(sum(len([*operator.mutation_positions(node)]) for node in nodes)):
            if int(sha256(f"{path} {name} {i}".encode()).hexdigest()[:8], 16) >= share * 2**32:
                continue
            text = mutate_code(source, operator, i)
            if behaviour(text) not in (same, None):
                pairs = enumerate(zip(lines, text.splitlines(), strict=False), 1)
                line, (before, after) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
                yield Mistake(path, line, before.strip(), after.strip(), text)


class Covering:
    """Which tests execute a line of ours, and how long they take, by a run of them all."""

    def __init__(self, copies: Bench) -> None:
        folder = copies.folder / "coverage"
        folder.mkdir()
        (folder / "rc").write_text(
            f"[run]\nsource = ftmodel\ndynamic_context = test_function\ndata_file = {folder}/data\n"
        )
        run = f"coverage run --rcfile={folder}/rc -m pytest --junitxml={folder}/seconds.xml"
        arguments = [*run.split(), "-m", "not slow and not cluster", *TESTS]
        # coverage does not start where torch has been imported
        result = copies.run(copies.right, *arguments, python=sys.executable)
        if result.returncode:
            raise click.ClickException(f"{result.stdout}\ntests fail on the code as it is")
        self.seconds: dict[str, float] = defaultdict(float)
        for case in ElementTree.parse(folder / "seconds.xml").iter("testcase"):
            test = f"{case.attrib['classname']}.{case.attrib['name'].partition('[')[0]}"
            self.seconds[test] += float(case.attrib["time"])
        self.data, self.root = CoverageData(f"{folder}/data"), copies.right
        self.data.read()

    def tests(self, mistake: Mistake) -> list[str]:
        """Ids of those that execute a line, the fastest first; of those that execute any line of
        its module, where the line is executed on import or by a fixture.
        """
        by_line = self.data.contexts_by_lineno(str(self.root / mistake.path))
        names, chosen, seconds = {*by_line.get(mistake.line, [])}, list[str](), 0.0
        if names <= {""}:
            names = {name for contexts in by_line.values() for name in contexts}
            folder, _, file = mistake.path.replace("ftmodel", "tests").rpartition("/")
            own = f"{folder}/test_{file}"
            chosen += [NUMBERS, *([own] if (ROOT / own).exists() else [])]
        for name in sorted(names - {""}, key=lambda name: self.seconds[name]):
            seconds += self.seconds[name]
            if chosen and seconds > MAX_SECONDS:
                break
            module, _, function = name.rpartition(".")
            chosen.append(f"{module.replace('.', '/')}.py::{function}")
        return chosen


def verdict(copies: Bench, covering: Covering, mistake: Mistake) -> tuple[Mistake, str]:
    tests = covering.tests(mistake)
    if not tests:
        return mistake, "no test"
    result, _ = copies.pytest_on(mistake.path, mistake.text, "-x", *tests, timeout=2 * MAX_SECONDS)
    if result is None:
        return mistake, NO_END
    assert "no match in any of" not in result.stdout, result.stdout  # as pytest says of a test's id
    return mistake, "survived" if result.returncode == 0 else KILLED


@click.command(help=__doc__)
@click.argument("packages", nargs=-1, type=click.Choice(PACKAGES))
@click.option("--share", default=1.0, help="Try this share of the mistakes, always the same ones.")
def main(packages: tuple[str, ...], share: float) -> None:
    equivalent = yaml.safe_load((ROOT / "tests/equivalent_mutants.yaml").read_text()) or {}
    (ROOT / "mutation").mkdir(exist_ok=True)
    table = []
    with bench() as copies, ThreadPoolExecutor(PROCESSES) as pool:
        covering = Covering(copies)
        for package in packages or PACKAGES:
            file = ROOT / f"mutation/{package}.jsonl"
            rows = map(json.loads, file.read_text().splitlines() if file.exists() else [])
            killed = {row["key"] for row in rows if row["verdict"] == KILLED}
            globs = f"ftmodel/{package}.py", f"ftmodel/{package}/**/*.py"
            modules = [module for glob in globs for module in ROOT.glob(glob)]
            paths = sorted(module.relative_to(ROOT).as_posix() for module in modules)
            made = [mistake for path in paths for mistake in mistakes(path, share)]
            same = [m for m in made if m.after in equivalent.get(m.path, {})]
            new = [m for m in made if m not in same and m.key not in killed]
            alive = endless = 0
            with file.open("a") as results:
                for mistake, word in pool.map(partial(verdict, copies, covering), new):
                    row = {"key": mistake.key, "verdict": word} | asdict(mistake)
                    del row["text"]
                    print(json.dumps(row), file=results, flush=True)
                    endless += word == NO_END
                    if word != KILLED:
                        alive += word != NO_END
                        print(f"{mistake.path}:{mistake.line}: {word}\n    {mistake.before}\n"
                              f"    {mistake.after}", flush=True)  # fmt: skip
            counted = len(made) - len(same) - endless
            rate = 1 - alive / max(counted, 1)
            table.append((package, counted, len(same), endless, alive, rate))
    print(f"{'package':<12} mistakes  equivalent  no end  survived  killed")
    for package, counted, same, endless, alive, rate in table:
        print(f"{package:<12} {counted:8}  {same:10}  {endless:6}  {alive:8}  {rate:6.1%}")


if __name__ == "__main__":
    main()
