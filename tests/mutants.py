"""Run mutants of the code: the test below each declaration must fail on it, by an assertion.

Each mutant is made in a copy of the project, where its test runs in a process forked from one that
has imported the libraries. Exit code 1 says that mutants survive.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.support.mutants import ROOT, Mutant, declared
from tests.support.warm_python import WarmPython

PROCESSES = 2
RECENT_COMMITS = 50
OTHERS = 10  # one in ten of the mutants that have not changed is run, too


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, text=True, capture_output=True).stdout


def functions(source: str) -> dict[str, str]:
    """What the functions of a module do, by name: decorators, such as mutants, are left out."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    for node in nodes:
        node.decorator_list = []
    return {node.name: ast.dump(node) for node in nodes}


def recent(mutants: list[Mutant]) -> list[Mutant]:
    """Mutants whose file or test changed in the last 50 commits, and a tenth of the others, which
    the commit's hash chooses.
    """
    head, *_, base = git("rev-list", f"--max-count={RECENT_COMMITS + 1}", "HEAD").split()
    files = set(git("diff", "--name-only", base).splitlines())
    tests = {
        (file, name)
        for file in files & {mutant.test_file for mutant in mutants}
        for name, body in functions((ROOT / file).read_text()).items()
        if body != functions(git("show", f"{base}:{file}")).get(name)
    }

    def drawn(mutant: Mutant) -> bool:
        return int(sha256(f"{head} {mutant.name}".encode()).hexdigest(), 16) % OTHERS == 0

    changed = [m for m in mutants if m.path in files or (m.test_file, m.function) in tests]
    others = [m for m in mutants if m not in changed and drawn(m)]
    print(f"{len(changed)} of {len(mutants)} mutants changed since {base[:7]};"
          f" {len(others)} others by the hash of {head[:7]}")  # fmt: skip
    return changed + others


class Bench:
    """A copy of the project, and further copies of it that differ in one place."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        self.right = folder / "right"
        self.numbers = count()
        for name in git("ls-files", "-co", "--exclude-standard").splitlines():
            if (ROOT / name).is_file():
                (self.right / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.right / name)

    def pytest(self, folder: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
        # with the worker's name in it, the fixtures of workspace.py would share their projects
        # with the tests of other copies
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)}
        return subprocess.run(
            [self.python, *["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"], *tests],
            cwd=folder,
            env=kept | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, mutant: Mutant) -> tuple[Mutant, float, str]:
        """The seconds it took, and what the test said if it did not notice the mutant."""
        start = time.monotonic()
        folder = self.folder / str(next(self.numbers))
        shutil.copytree(self.right, folder, copy_function=os.link)
        source = folder / mutant.path
        text = source.read_text(encoding="utf-8")
        source.unlink()  # a link to the right version
        source.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        result = self.pytest(folder, [mutant.test])
        shutil.rmtree(folder)
        return mutant, time.monotonic() - start, "" if noticed(result) else result.stdout


def noticed(result: subprocess.CompletedProcess[str]) -> bool:
    """Whether tests failed, and by an assertion: exit code 1, no exception but AssertionError."""
    raised = re.findall(r"^E   (\S+)", result.stdout, re.MULTILINE)
    errors = {word for word in raised if re.fullmatch(r"(\w+\.)*\w*(Error|Exception):?", word)}
    return result.returncode == 1 and errors <= {"AssertionError:"}


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, metavar="[PART OF A NAME OR FILE]…")
@click.option("--only-recent", is_flag=True, help=recent.__doc__)
def main(parts: tuple[str, ...], only_recent: bool) -> None:
    chosen = [m for m in declared() if not parts or any(p in f"{m.path} {m.name}" for p in parts)]
    chosen = recent(chosen) if only_recent else chosen
    survivors = []
    with (
        closing(WarmPython()) as warm,
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(PROCESSES) as pool,
    ):
        bench = Bench(Path(folder), warm.command)
        right = bench.pytest(bench.right, sorted({mutant.test for mutant in chosen}))
        if right.returncode:
            sys.exit(f"{right.stdout}\nerror: tests fail on the code as it is, too")
        for mutant, seconds, said in pool.map(bench.run, chosen):
            verdict = "SURVIVED" if said else "killed"
            print(f"{seconds:6.1f} s  {verdict}  {mutant.path}: {mutant.name}  [{mutant.test}]",
                  flush=True)  # fmt: skip
            if said:
                survivors.append(mutant.name)
                print(said, file=sys.stderr)
    for name in survivors:
        print(f"survivor: {name}")
    print(f"{len(chosen) - len(survivors)} mutants killed, {len(survivors)} survived")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
