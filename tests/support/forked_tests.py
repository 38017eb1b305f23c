"""A plugin of pytest: try mistakes in forks of a process that has collected the tests.

The tests run once on the code as it is, under coverage, which says what tests execute a statement.
Each mistake then has a fork of its own, in which the changed functions get their new code, wherever
they were imported to, and those tests run, until one fails. Modules are not imported again: where a
mistake changes what a module does when it is imported, a constant or a function's defaults are
replaced, and if no test fails, the verdict is MODULE_LEVEL: they must run on a changed copy.

What outlives a fork is the folder of projects that tests share (tests/support/workspace.py), and
what the fixtures in SHARED put there is made by the code as it is.
"""

import ast
import gc
import inspect
import json
import multiprocessing
import os
import pickle
import re
import resource
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper, cache
from inspect import CO_OPTIMIZED
from itertools import groupby
from math import inf
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage
from hypothesis import Phase

from tests.support.mistakes import Mistake

PROCESSES = 2
MAX_SECONDS = 6.0  # of the processor, for the tests of one mistake after the first
MAX_MORE_SECONDS = 60.0  # for further tests of a mistake that survived those
SHARED = {"tokenized", "finished", "warm_python"}
KILLED, SURVIVED, NO_END = "killed", "survived", "no end"
NO_TEST, MODULE_LEVEL = "no test", "module level"
SURVIVED_CODE, KILLED_CODE, MODULE_LEVEL_CODE = range(3)
VERDICTS = dict(enumerate((SURVIVED, KILLED, MODULE_LEVEL)))
Row: TypeAlias = dict[str, Any]
Statement: TypeAlias = Callable[[Mistake], range]  # its lines
Job: TypeAlias = tuple[Mistake | None, list[str]]  # without a mistake: the code as it is
ROOT = Path(__file__).parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mistakes", help="a file with pickled mistakes and the lines of statements")
    parser.addoption("--verdicts", help="a file to which a line is added for each verdict")
    parser.addoption("--until", type=float, default=inf, help="half of the time is for measuring")


def pytest_configure() -> None:
    """Have Hypothesis stop at the first example that fails: to find the smallest takes minutes."""
    hypothesis.settings.register_profile("first", phases=[Phase.explicit, Phase.generate])
    hypothesis.settings.load_profile("first")


def processor_seconds() -> float:
    """Of this process and of those that it started and waited for."""
    return sum(os.times()[:4])


def outermost(code: CodeType) -> Iterator[CodeType]:
    """The functions and methods in the code of a module or class."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if is_body(const):
                yield from outermost(const)
            else:
                yield const


def is_body(code: CodeType) -> bool:
    """Whether it is of a class, or of a comprehension that runs when the module is imported."""
    comprehension = code.co_name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
    return comprehension or not code.co_flags & CO_OPTIMIZED


def same_import(old: CodeType, new: CodeType) -> bool:
    """Whether two modules, or class bodies, do the same when they are imported."""
    if (old.co_code, old.co_names) != (new.co_code, new.co_names):
        return False
    if len(old.co_consts) != len(new.co_consts):
        return False
    for a, b in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(a, CodeType) and isinstance(b, CodeType):
            if is_body(a) and not same_import(a, b):
                return False
        elif (type(a), repr(a)) != (type(b), repr(b)):
            return False
    return True


def definition(text: str, line: int) -> list[ast.stmt]:
    """The function, method or assignment of the module in which a line is."""
    module = ast.parse(text)
    bodies = [module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))]
    found = [
        node
        for body in bodies
        for node in body
        if node.lineno <= line <= (node.end_lineno or 0)
        if isinstance(node, ast.FunctionDef) or body is module.body
    ]
    found = [node for node in found if not isinstance(node, ast.ClassDef)]
    return found[:1]


@cache
def names_of(path: str, line: int) -> set[str]:
    """The functions and classes, or the constant, in which a line is."""
    found = set[str]()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign):
                found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return {name for name in found if not name.startswith("__")}


def places_of(path: str, line: int) -> list[tuple[str, ...]]:
    """The functions or the constant in which a line is, and its module."""
    return [(path, *sorted(names_of(path, line))), (path,)]


@cache
def body_of(path: str, line: int) -> range:
    """The lines that a condition or a loop at that line guards."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.If | ast.For | ast.While):
            continue
        if node.lineno <= line < node.body[0].lineno:
            return range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
    return range(0)


@cache
def function_around(path: str, line: int) -> range:
    """The lines of the innermost function that holds a line."""
    found = range(0)
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            found = range(node.lineno + 1, (node.end_lineno or 0) + 1)
    return found


@cache
def words_of(function: Any) -> set[str]:
    return set(re.findall(r"\w+", inspect.getsource(function)))


def place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def row_of(mistake: Mistake, verdict: str, tests: list[str]) -> Row:
    row = {"key": mistake.key, "verdict": verdict, "path": mistake.path, "line": mistake.line}
    return row | {"before": mistake.before, "after": mistake.after, "tests": tests}


class Forks:
    def __init__(self, session: pytest.Session) -> None:
        self.items, self.config = session.items, session.config
        self.contexts: list[str] = []
        self.all_ran = False
        self.seconds: dict[str, float] = {}
        self.broken: set[str] = set()
        self.lines: dict[str, dict[int, list[str]]] = {}
        self.fixtures: dict[str, set[str]] = defaultdict(set)  # which tests need one
        self.set_up: dict[Any, float] = defaultdict(float)  # seconds, of fixtures of several tests
        self.needs: dict[str, set[Any]] = {}  # fixtures, by test
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self.caches: list[Any] = []
        self.kills: Counter[tuple[str, ...]] = Counter()  # of mistakes in a place, by a test
        self.passed: dict[str, list[str]] = {}  # tests, by the key of a mistake that survived them
        self.sound = set[str]()  # tests that pass in a fork on the code as it is
        self.forked = 0
        self.base = Path(self.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """What a fixture of several tests executes counts for each of them."""
        coverage = Coverage.current()
        if fixturedef.scope == "function" or coverage is None or not self.contexts:
            return (yield)
        self.contexts.append(f"fixture {fixturedef.argname}")
        coverage.switch_context(self.contexts[-1])
        before = processor_seconds()
        try:
            return (yield)
        finally:
            if fixturedef.argname not in SHARED:
                self.set_up[fixturedef] += processor_seconds() - before
            self.contexts.pop()
            coverage.switch_context(self.contexts[-1])

    def measure(self, modules: set[str], until: float) -> None:
        """Run the tests until that time, those in the modules' own files first."""
        coverage = Coverage.current()
        assert coverage
        self.items.sort(key=lambda item: item.path.name.removeprefix("test_") not in modules)
        for item, after in zip(self.items, [*self.items[1:], None], strict=True):
            late = time.time() > until
            for name in getattr(item, "fixturenames", ()):
                self.fixtures[f"fixture {name}"].add(item.nodeid)
            self.contexts = [item.nodeid]
            coverage.switch_context(item.nodeid)
            before = processor_seconds() - sum(self.set_up.values())
            reports = runtestprotocol(item, log=False, nextitem=None if late else after)
            if any(report.failed for report in reports):
                print(f"left out, as it fails under coverage: {item.nodeid}", flush=True)
                self.broken.add(item.nodeid)
            self.seconds[item.nodeid] = processor_seconds() - sum(self.set_up.values()) - before
            found = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
            self.needs[item.nodeid] = {each[-1] for each in found.values()}
            if late:
                break
        self.all_ran = len(self.seconds) == len(self.items)
        self.contexts = []
        coverage.stop()
        data = coverage.get_data()
        for file in data.measured_files():
            self.lines[file] = data.contexts_by_lineno(file)

    def index(self) -> None:
        """Where the functions and caches of the project are, for all forks to find."""
        gc.unfreeze()  # what a test may have frozen would not be listed
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                if thing.__code__.co_filename.startswith(str(ROOT)):
                    self.functions[place(thing.__code__)].append(thing)
            elif isinstance(thing, _lru_cache_wrapper):
                code = getattr(thing.__wrapped__, "__code__", None)
                if code and code.co_filename.startswith(str(ROOT)):
                    self.caches.append(thing)
        gc.freeze()  # else a collection in a fork would copy all pages

    def tests(self, mistake: Mistake, statement: range, seconds: float) -> list[str]:
        """Those that execute the statement and did not run yet, until they take so many seconds.
        First come those that found most mistakes a second in the same function, then those that
        execute what a changed condition guards, those of the closest file and those that name what
        is changed, then those that execute a line of the function that few others reach, then those
        that found most in the same module, then the fastest.
        """
        lines, names = self.lines.get(str(ROOT / mistake.path), {}), set[str]()
        for line in statement:
            names.update(lines.get(line, []))
        names.discard("")
        if not names:  # it runs when the module is imported
            names = {name for contexts in lines.values() for name in contexts}
        for fixture in [name for name in names if name.startswith("fixture ")]:
            names.discard(fixture)
            if fixture.removeprefix("fixture ") not in SHARED:
                names |= self.fixtures[fixture]
        own, symbols = f"test_{Path(mistake.path).name}", names_of(mistake.path, mistake.line)
        functions = {item.nodeid: item.function for item in self.items}  # type: ignore[attr-defined]
        chosen = list[str]()
        known = names & self.seconds.keys() - self.broken - {*self.passed.get(mistake.key, [])}
        cost = {name: max(self.cost([name]), 0.01) for name in known}
        near = places_of(mistake.path, mistake.line)
        found = {n: [-self.kills[*place, n] / cost[n] for place in near] for n in known}
        far = {
            name: (own not in name) + (not symbols & words_of(functions[name])) for name in known
        }
        body = body_of(mistake.path, mistake.line)
        for name in known & {name for line in body for name in lines.get(line, [])}:
            far[name] -= 3
        reached: dict[str, int] = {}  # of a test: how many tests reach the rarest line it reaches
        for line in function_around(mistake.path, mistake.line):
            here = known.intersection(lines.get(line, []))
            for name in here:
                reached[name] = min(reached.get(name, len(known)), len(here))
        rank = lambda n: (found[n][0], far[n], reached.get(n, 0), found[n][1], cost[n])  # noqa: E731
        for name in sorted(known, key=rank):
            if self.cost([*chosen[1:], name]) <= seconds or not chosen:
                chosen.append(name)
        return chosen

    def note_kill(self, path: str, line: int, test: str) -> None:
        self.kills.update((*place, test) for place in places_of(path, line))

    def enough_ran(self, mistake: Mistake) -> bool:
        """Whether all tests ran or, where time did not suffice, those in the module's own file."""
        file = f"test_{Path(mistake.path).name}"
        own = {item.nodeid for item in self.items if item.path.name == file} or {"none"}
        return self.all_ran or own <= self.seconds.keys()

    def cost(self, names: list[str]) -> float:
        """Seconds of tests in a fork, which has to set up again what they share."""
        fixtures = {fixture for name in names for fixture in self.needs[name]}
        return sum(self.seconds[name] for name in names) + sum(self.set_up[f] for f in fixtures)

    def change(self, mistake: Mistake) -> bool:
        """Give functions their new code; False if more than that is changed."""
        file = str(ROOT / mistake.path)
        source = (ROOT / mistake.path).read_text(encoding="utf-8")
        old, new = (compile(text, file, "exec", 0, True) for text in (source, mistake.text))
        if not same_import(old, new):
            return False
        for was, code in zip(outermost(old), outermost(new), strict=True):
            if was != code:
                if place(was) not in self.functions:
                    return False
                for function in self.functions[place(was)]:
                    function.__code__ = code
        self.clear_caches()
        return True

    def change_globals(self, mistake: Mistake) -> None:
        """Give a constant its new value, or a function its new defaults, wherever they were
        imported to. What other modules derived from them when they were imported stays.
        """
        name = mistake.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module, [node] = sys.modules[name], definition(mistake.text, mistake.line) or [None]
        lines = set[int]()  # where its code may begin
        if isinstance(node, ast.FunctionDef):
            lines = {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}
            node.decorator_list = []
        elif not isinstance(node, ast.Assign | ast.AnnAssign):
            return
        made: dict[str, Any] = {}
        exec(
            compile(ast.Module([node], []), module.__file__ or "", "exec", 0, True),
            dict(vars(module)),
            made,
        )
        for key, value in made.items():
            for (path, qualified, line), functions in self.functions.items():
                if path == module.__file__ and line in lines and qualified.endswith(key):
                    for function in functions:
                        function.__defaults__ = value.__defaults__
                        function.__kwdefaults__ = value.__kwdefaults__
            old = vars(module).get(key)
            for other in [*sys.modules.values()] if not lines else []:
                if key in vars(other) and vars(other)[key] is old:
                    setattr(other, key, value)
        self.clear_caches()

    def clear_caches(self) -> None:
        for each in self.caches:
            each.cache_clear()

    def run(self, mistake: Mistake | None, names: list[str], folder: Path) -> int:
        """In a fork: the exit code. The names of tests that failed go to a file."""
        limit = int(5 + 3 * self.cost(names))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        folder.mkdir()
        self.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        survived = SURVIVED_CODE
        if mistake and not self.change(mistake):
            survived = MODULE_LEVEL_CODE
            # what cannot be evaluated by itself is no kill: a copy tells
            with suppress(Exception):
                self.change_globals(mistake)
        wanted = {item.nodeid: item for item in self.items}
        items, failed = [wanted[name] for name in names], list[str]()
        for item, after in zip(items, [*items[1:], None], strict=True):
            reports = runtestprotocol(item, log=False, nextitem=after)
            failed += [item.nodeid] * any(report.failed for report in reports)
            if failed and mistake:
                break
        (folder / "failed.json").write_text(json.dumps(failed))
        return KILLED_CODE if failed else survived

    def fork(self, mistake: Mistake | None, names: list[str], folder: Path) -> int:
        if process := os.fork():
            return process
        code = KILLED_CODE  # by an exception that ends pytest, too
        try:
            os.setpgid(0, 0)
            code = self.run(mistake, names, folder)
        finally:
            os._exit(code)

    def outcomes(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, str, list[str]]]:
        """The verdict on mistakes, several at a time, and the tests that failed."""
        running: dict[int, tuple[Job, Path, float]] = {}
        while True:
            while len(running) < PROCESSES and (job := next(jobs, None)):
                if not job[1]:
                    yield job, NO_TEST, []
                    continue
                self.forked += 1
                folder = self.base / f"fork-{self.forked}"
                limit = 60 + 10 * self.cost(job[1])
                running[self.fork(*job, folder)] = job, folder, time.monotonic() + limit
            if not running:
                return
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended not in running:
                for process in [p for p, (*_, end) in running.items() if time.monotonic() > end]:
                    os.kill(process, signal.SIGKILL)
                time.sleep(0.002)
                continue
            with suppress(ProcessLookupError):
                os.killpg(ended, signal.SIGKILL)  # what tests left behind
            job, folder, _ = running.pop(ended)
            file = folder / "failed.json"
            failed = json.loads(file.read_text()) if file.exists() else []
            shutil.rmtree(folder, ignore_errors=True)
            yield job, VERDICTS.get(os.waitstatus_to_exitcode(status), NO_END), failed

    def unsound(self, names: set[str]) -> set[str]:
        """Those that fail in a fork on the code as it is, so that their failures say nothing."""
        by_file = groupby(sorted(names), key=lambda name: name.partition("::")[0])
        files = [[*group] for _, group in by_file]
        outcomes = self.outcomes((None, tests) for tests in files)
        return {
            name
            for (_, tests), word, failed in outcomes
            for name in (failed if word in (SURVIVED, KILLED) else tests)
        }

    def try_all(self, todo: list[Mistake], statement: Statement, until: float) -> Iterator[Row]:
        """A row for each mistake that is tried; of two of the same mistake the last one counts.
        What survives is tried again, with further tests.
        """
        yield from self.try_each(todo, statement, until, MAX_SECONDS)
        todo = [mistake for mistake in todo if mistake.key in self.passed]
        yield from self.try_each(todo, statement, until, MAX_MORE_SECONDS)

    def try_each(
        self, todo: list[Mistake], statement: Statement, until: float, seconds: float
    ) -> Iterator[Row]:
        """A row for each mistake, with tests that together take so many seconds."""
        while todo:
            killers: dict[str, list[Mistake]] = defaultdict(list)
            jobs = ((m, self.tests(m, statement(m), seconds)) for m in todo if time.time() < until)
            known = (
                job for job in jobs if job[1] or (self.all_ran and job[0].key not in self.passed)
            )
            for (mistake, names), word, failed in self.outcomes(known):
                assert mistake
                if word in (SURVIVED, MODULE_LEVEL) and not self.enough_ran(mistake):
                    word = NO_END  # another test may notice it
                if word == SURVIVED:
                    names = self.passed[mistake.key] = self.passed.get(mistake.key, []) + names
                yield row_of(mistake, word, failed or names)
                for test in failed:
                    killers[test].append(mistake)
                    self.note_kill(mistake.path, mistake.line, test)
            broken = self.unsound({*killers} - self.sound)
            for test in broken:
                print(f"left out, as it fails in a fork: {test}", flush=True)
            self.broken |= broken
            self.sound |= {*killers} - broken
            todo = [mistake for test in broken for mistake in killers[test]]
            # what a broken test said does not stay, even if there is no time to try again
            yield from (row_of(mistake, NO_END, []) for mistake in todo)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    os.environ["PYTEST_XDIST_WORKER"] = "fork"  # projects are shared as between workers
    forks = Forks(session)
    session.config.pluginmanager.register(forks)
    option = session.config.getoption
    until = option("--until")
    made, lines = pickle.loads(Path(option("--mistakes")).read_bytes())
    forks.measure({Path(m.path).name for m in made}, (time.time() + until) / 2)
    forks.index()
    context = multiprocessing.get_context("fork")  # workers have the mistake, too
    multiprocessing.get_context = lambda method=None: context  # type: ignore[assignment,misc]
    statement = lambda m: lines[m.path].get(m.line, range(m.line, m.line + 1))  # noqa: E731
    with open(option("--verdicts"), "a+", buffering=1) as out:
        out.seek(0)
        for row in map(json.loads, out):
            for test in row["tests"] if row["verdict"] == KILLED else []:
                forks.note_kill(row["path"], row["line"], test)
        for row in forks.try_all(made, statement, until):
            print(json.dumps(row), file=out)
    return True
