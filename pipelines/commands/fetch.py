"""Download a suite's data to data/benchmarks/.

    ftlab fetch                                 # the suite of params.yaml
    ftlab fetch suite=paper                     # of conf/suite/paper.yaml

The folder is a cache of `datasets`, and may be copied to machines without a hub. The first download
of a dataset pins its commit. If a download fails, it is named at the end, and the exit code is 1.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from pipelines.host.command_line import choices, command
from pipelines.host.errors import UserError, printable
from pipelines.host.files import alone, write_file


def suite_tasks(arguments: Sequence[str]) -> dict[str, str]:
    """Tasks, by their names under suite.tasks, of the named suites, else of params.yaml's."""
    from pipelines.config.compose import compose_config
    from pipelines.config.load import PARAMS, read_params

    for argument in arguments:
        key, _, name = argument.partition("=")
        if key != "suite" or not name:
            raise UserError(f"{argument!r}; usage: ftlab fetch [suite=<name>]…")
    configs = [compose_config([argument]) for argument in arguments] or [read_params()]
    try:
        tasks = [config.suite.tasks.items() for config in configs]
        return {name: str(entry.task) for each in tasks for name, entry in each}
    except AttributeError:
        raise UserError(f"{PARAMS}: cannot read the tasks of a suite there") from None


def fetch(task: str) -> dict[str, Any] | None:
    """Bring a task's data: documents and datasets, or None if it has its own. Raises Skipped."""
    from pipelines.suite import benchmark_data, tasks

    loaded = tasks.load(task)["tasks"].values()
    origins = benchmark_data.origins(each.config for each in loaded)
    if not origins:
        return None
    return {"documents": sum(len(each.eval_docs) for each in loaded), "datasets": origins}


def note(fetched: dict[str, Any]) -> None:
    """Add what was fetched to the list on which stage `suite` depends."""
    from pipelines.suite.benchmark_data import FETCHED

    with alone(FETCHED):
        before = json.loads(FETCHED.read_text(encoding="utf-8")) if FETCHED.exists() else {}
        now = dict(sorted({**before, **fetched}.items()))
        if now != before:
            write_file(FETCHED, json.dumps(now, indent=1) + "\n")


@command(__doc__)
@click.argument(
    "suites", help="suite=<name>, a file of conf/suite/.", shell_complete=choices("suite"), nargs=-1
)
def main(suites: Sequence[str]) -> None:
    from pipelines.common.file_listing import words_of
    from pipelines.suite.task_index import check_names
    from pipelines.suite.tasks import Skipped

    wanted = suite_tasks(suites)
    check_names(wanted)
    failed: dict[str, str] = {}
    for name, task in wanted.items():
        try:
            brought = fetch(task)
        except Exception as error:  # whatever is wrong with one task, the others are wanted
            cause = error.__cause__ if isinstance(error, Skipped) else None
            failed[name] = words_of(cause if isinstance(cause, Exception) else error)
            print(f"{name}: not fetched", flush=True)
            continue
        if brought is None:
            print(f"{name}: brings its own data", flush=True)
            continue
        note({task: brought})
        paths = ", ".join(sorted({each["dataset"] for each in brought["datasets"]}))
        print(f"{name}: {paths}, {brought['documents']:,} documents", flush=True)
    for name, reason in failed.items():
        print(printable(f"{name}: {reason}"), file=sys.stderr)
    if failed:
        raise SystemExit(1)
