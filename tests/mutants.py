"""Run mutants of the code: the test below each declaration must fail on it, by an assertion.

Each mutant is made in a copy of the project, where its test runs in a process forked from one that
has imported the libraries. Exit code 1 says that mutants survive.
"""

import ast
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import click

from tests import ROOT
from tests.support.bench import Bench, bench, git, head_and_base
from tests.support.mutants import Mutant, declared

PROCESSES = 2
OTHERS = 10  # one in ten of the mutants that have not changed is run, too


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
    head, base = head_and_base()
    files = set(git("diff", "--name-only", base).splitlines())
    tests = {
        (file, name)
        for file in files & {mutant.test_file for mutant in mutants}
        for name, body in functions((ROOT / file).read_text(encoding="utf-8")).items()
        if body != functions(git("show", f"{base}:{file}")).get(name)
    }

    def drawn(mutant: Mutant) -> bool:
        return int(sha256(f"{head} {mutant.name}".encode()).hexdigest(), 16) % OTHERS == 0

    changed = [m for m in mutants if m.path in files or (m.test_file, m.function) in tests]
    others = [m for m in mutants if m not in changed and drawn(m)]
    print(
        f"{len(changed)} of {len(mutants)} mutants have changed since {base[:7]};"
        f" {len(others)} others are chosen by {head[:7]}"
    )
    return changed + others


def verdict(bench: Bench, mutant: Mutant) -> tuple[Mutant, float, str]:
    """The seconds it took, and what the test said if it did not notice the mutant."""
    result, seconds = bench.pytest_on(mutant.path, mutant.altered, mutant.test)
    assert result is not None
    raised = re.findall(r"^E   (\S+)", result.stdout, re.MULTILINE)
    errors = {word for word in raised if re.fullmatch(r"(\w+\.)*\w*(Error|Exception):?", word)}
    noticed = result.returncode == 1 and errors <= {"AssertionError:"}
    return mutant, seconds, "" if noticed else result.stdout


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, metavar="[PART OF A NAME OR PATH]…")
@click.option("--only-recent", is_flag=True, help=recent.__doc__)
def main(parts: tuple[str, ...], only_recent: bool) -> None:
    chosen = [m for m in declared() if not parts or any(p in f"{m.path} {m.name}" for p in parts)]
    if not chosen:
        raise click.UsageError(f"no mutant is called {' or '.join(parts)}")
    chosen = recent(chosen) if only_recent else chosen
    survivors = []
    with bench() as copies, ThreadPoolExecutor(PROCESSES) as pool:
        tests = sorted({mutant.test for mutant in chosen})
        right = pool.submit(copies.pytest, copies.right, *tests)
        for mutant, seconds, said in pool.map(lambda m: verdict(copies, m), chosen):
            word = "SURVIVED" if said else "killed"
            line = f"{seconds:6.1f} s  {word}  {mutant.path}: {mutant.name}  [{mutant.test}]"
            print(line, flush=True)
            if said:
                survivors.append(mutant.name)
                print(said, file=sys.stderr)
    if right.result().returncode:
        sys.exit(f"{right.result().stdout}\nerror: tests fail on the code as it is, too")
    for name in survivors:
        print(f"survivor: {name}")
    print(f"{len(chosen) - len(survivors)} mutants killed, {len(survivors)} survived")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
