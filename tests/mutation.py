"""Search for mistakes in ftmodel and pipelines that no test notices.

tests/support/mistakes.py makes the mistakes, and tests/support/forked_tests.py tries them, each
with the tests that execute its statement, the likeliest to notice it first. What survives six
seconds of tests gets sixty more. Mistakes in what a module does when it is imported are tried in a
copy of the project. Results go to mutation/<package>.jsonl; the next call goes on from there, and
tries again what survived. Tests that do not end say nothing ("unknown"): there may be an endless
loop, or a busy machine. Nor do mistakes that survive where time did not suffice for the tests in
the module's own file.
tests/equivalent_mutants.yaml names changed lines that compute the same as the code, each with the
reason: they are not counted.
"""

import json
import pickle
import re
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path

import click
import yaml

from tests import ROOT
from tests.support.bench import Bench, bench, git, head_and_base
from tests.support.forked_tests import (
    KILLED,
    MAX_MORE_SECONDS,
    MODULE_LEVEL,
    NO_END,
    PROCESSES,
    SURVIVED,
)
from tests.support.mistakes import Mistake, mistakes, statements

MIN_KILLED, MIN_TRIED = 0.5, 20  # of recent mistakes: a chance sample, by the closest tests
MODEL = ["analysis", "conversion", "costs", "designs", "inference", "kernels", "model", "synthetic"]
MODEL += ["cache", "layers", "mapper", "positions", "schedule"]  # modules
MODEL_TESTS = [*MODEL, "evaluate", "test_costs.py", "test_scaling.py"]
PIPELINES = {  # which tests are closest
    "artifacts": ["artifacts", "tokenize/test_vocabulary.py"],
    "cluster": ["cluster", "sweep", "commands/test_job.py"],
    "commands": ["commands"],
    "common": ["common", "commands", "data", "parallel", "export"],
    "compare": ["compare"],
    "config": [  # of ftmodel, too
        *("config", "compare", "suite/test_pass_at_k.py", "docs/test_settings.py"),
        *("commands/test_repro.py", "designs", "model"),
    ],
    "data": ["data"],
    "evaluate": ["evaluate"],
    "export": ["export", "commands/test_keep.py", "commands/test_register.py"],
    "host": ["common", "commands", "data", "parallel", "export"],
    "parallel": [
        *("parallel", "commands/test_repro.py", "commands/test_repro_jobs.py"),
        *("commands/test_plan.py", "docs/test_cluster_page.py"),
    ],
    "report": ["report", "compare"],
    "suite": ["suite", "commands/test_fetch.py"],
    "sweep": ["sweep"],
    "tokenize": ["tokenize"],
    "tracking": ["tracking", "commands/test_register.py", "sweep/test_tune.py"],
    "train": ["train", "cluster/test_workers.py", "model/test_precision.py"],
    "cli": ["commands/test_cli.py"],  # modules
    "inputs": ["commands/test_inputs.py", "test_reruns.py"],
}
MANY_INPUTS = "config/test_fuzz.py"  # takes minutes under coverage
PACKAGES = [*MODEL, *PIPELINES]


def paths_of(package: str) -> list[str]:
    globs = [
        glob
        for root in ("ftmodel", "pipelines")
        for glob in (f"{root}/{package}.py", f"{root}/{package}/**/*.py")
    ]
    found = [file.relative_to(ROOT).as_posix() for glob in globs for file in ROOT.glob(glob)]
    return sorted(path for path in found if "/sandbox/" not in path)


def tests_of(package: str) -> list[str]:
    names = [package, *MODEL_TESTS] if package in MODEL else PIPELINES[package]
    return [f"tests/{name}" for name in dict.fromkeys(names) if (ROOT / "tests" / name).exists()]


def try_in_forks(
    copies: Bench, package: str, made: list[Mistake], file: Path, until: float
) -> None:
    """Add a row to ``file`` for each mistake that is tried before ``until``."""
    folder = copies.folder / f"coverage-{package}"
    folder.mkdir()
    (folder / "rc").write_text(f"[run]\nsource = ftmodel,pipelines\ndata_file = {folder}/data\n")
    lines = {path: statements(path) for path in paths_of(package)}
    (folder / "mistakes").write_bytes(pickle.dumps((made, lines)))
    # coverage does not start where torch has been imported, so in a new process
    result = copies.run(
        copies.right,
        *("coverage", "run", f"--rcfile={folder}/rc", "-m", "pytest", "-q"),
        *("-p", "no:cacheprovider", "-p", "tests.support.forked_tests"),
        f"--basetemp={folder}/tests",
        *(f"--mistakes={folder}/mistakes", f"--verdicts={file}", f"--until={until}"),
        *("-m", "not slow and not cluster and not gpu", *tests_of(package)),
        f"--ignore=tests/{MANY_INPUTS}",
        python=sys.executable,
    )
    if result.returncode:
        raise click.ClickException(result.stdout)
    for line in re.findall("left out.*", result.stdout):
        print(line)


def try_in_copy(copies: Bench, until: float, mistake: Mistake, names: list[str]) -> str:
    """The verdict of the tests that execute the module, in a copy of the project."""
    if time.time() > until:
        return MODULE_LEVEL
    tests = [*dict.fromkeys(name.partition("[")[0] for name in names)]
    result, _ = copies.pytest_on(mistake.path, mistake.text, "-x", *tests, timeout=MAX_MORE_SECONDS)
    if result is None:
        return NO_END
    return SURVIVED if result.returncode == 0 else KILLED


def read(file: Path) -> dict[str, dict]:
    """The last row of each mistake."""
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return {row["key"]: row for row in rows}


def recent_lines() -> dict[str, set[int]]:
    """The lines of each module that the last 50 commits changed."""
    _, base = head_and_base()
    lines: dict[str, set[int]] = {}
    path = ""
    for line in git("diff", "--unified=0", base, "--", "*.py").splitlines():
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
        elif found := re.match(r"@@ .* \+(\d+)(?:,(\d+))? @@", line):
            start, n = int(found[1]), int(found[2] or 1)
            lines.setdefault(path, set()).update(range(start, start + n))
    return lines


@click.command(help=__doc__)
@click.argument("packages", nargs=-1, type=click.Choice(PACKAGES))
@click.option("--only-recent", is_flag=True, help=recent_lines.__doc__)
@click.option("--minutes", type=float, default=float("inf"), help="Try no more after that.")
def main(packages: tuple[str, ...], only_recent: bool, minutes: float) -> None:
    until = time.time() + 60 * minutes
    equivalent = yaml.safe_load((ROOT / "tests/equivalent_mutants.yaml").read_text()) or {}
    (ROOT / "mutation").mkdir(exist_ok=True)
    recent, head = recent_lines() if only_recent else {}, git("rev-parse", "HEAD")
    draw = lambda name: sha256(f"{head} {name}".encode()).hexdigest()  # noqa: E731
    chosen: Iterable[str] = packages or PACKAGES
    if only_recent:
        chosen = sorted(chosen, key=draw)
    table = []
    with bench() as copies, ThreadPoolExecutor(PROCESSES) as pool:
        for package in chosen:
            if time.time() > until:
                break
            file = ROOT / f"mutation/{package}.jsonl"
            paths = [path for path in paths_of(package) if path in recent or not only_recent]
            made = [mistake for path in paths for mistake in mistakes(path)]
            if only_recent:
                made = [m for m in made if m.line in recent[m.path]]
                made.sort(key=lambda m: draw(m.key))
            if not made:
                continue
            counted = [m for m in made if m.after not in equivalent.get(m.path, {})]
            before = read(file)
            new = [m for m in counted if before.get(m.key, {}).get("verdict") != KILLED]
            if new:
                try_in_forks(copies, package, new, file, until)
            rows = read(file)
            again = [m for m in new if rows.get(m.key, {}).get("verdict") == MODULE_LEVEL]
            tests = [rows[mistake.key]["tests"] for mistake in again]
            verdicts = pool.map(partial(try_in_copy, copies, until), again, tests)
            with file.open("a") as out:
                for mistake, word in zip(again, verdicts, strict=True):
                    row = rows[mistake.key] | {"verdict": word}
                    print(json.dumps(row), file=out, flush=True)
                    rows[mistake.key] = row
            tried = [rows[m.key] for m in counted if m.key in rows]
            alive = [r for r in tried if r["verdict"] not in (KILLED, NO_END, MODULE_LEVEL)]
            for row in alive:
                print(f"{row['path']}:{row['line']}: {row['verdict']}\n    {row['before']}\n"
                      f"    {row['after']}", flush=True)  # fmt: skip
            endless = sum(row["verdict"] in (NO_END, MODULE_LEVEL) for row in tried)
            rate = 1 - len(alive) / max(len(tried) - endless, 1)
            same = len(made) - len(counted)
            table.append((package, len(tried) - endless, same, endless, len(alive), rate))
    print(f"{'package':<12} mistakes  equivalent  unknown  survived  killed")
    for package, n, same, endless, survived, rate in table:
        print(f"{package:<12} {n:8}  {same:10}  {endless:7}  {survived:8}  {rate:6.1%}")
    tried, survived = (sum(row[column] for row in table) for column in (1, 4))
    if only_recent and tried >= MIN_TRIED and survived > (1 - MIN_KILLED) * tried:
        sys.exit(f"error: {survived} of {tried} mistakes survived")


if __name__ == "__main__":
    main()
