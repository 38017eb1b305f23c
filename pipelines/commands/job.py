"""Run a command in a folder that all nodes share.

    ray job submit --working-dir . -- python -m pipelines.cli job /srv/lab -- dvc repro

First copies this working tree there. Ray's own copy of it has no data, checkpoints or DVC cache,
and is deleted after the job. The shared folder keeps them, so the next job makes only what has
changed. The nodes' `ftlab` belongs to another copy, so a job calls `python -m pipelines.cli`.
"""

import filecmp
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from pipelines.host.command_line import command
from pipelines.host.dvc import allow_no_git
from pipelines.host.errors import UserError
from pipelines.host.files import alone, check_writable

USAGE = "usage: ftlab job <folder that all nodes share> -- <command> [<argument> …]"
BROUGHT = ".brought.json"  # the files of the last job, to remove those that are gone
NOT_BROUGHT = {".git", ".venv", "__pycache__", "dvc.lock", BROUGHT}


def arguments(shared: str, after: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """The folder and the command; raises UserError for anything else."""
    if len(after) < 2 or after[0] != "--":
        raise UserError(USAGE)
    folder = Path(shared)
    if not folder.is_absolute():
        raise UserError(f"{folder}: not an absolute path; {USAGE}")
    if folder.resolve() == Path.cwd().resolve():
        raise UserError(f"{folder}: this is the working tree itself; run the command in it")
    return folder, after[1:]


def bring(tree: Path, folder: Path) -> None:
    """Copy the tree's sources to the folder, and remove old ones there; results stay."""
    # what Ray has uploaded for a job: none that git ignores, and so no results
    paths = (path.relative_to(tree) for path in tree.rglob("*") if path.is_file())
    brought = sorted(str(path) for path in paths if not NOT_BROUGHT & set(path.parts))
    list_file = folder / BROUGHT
    before = json.loads(list_file.read_text(encoding="utf-8")) if list_file.exists() else []
    list_file.write_text(
        json.dumps(sorted({*before, *brought})), encoding="utf-8"
    )  # should this be cut short
    for gone in set(before) - set(brought):
        (folder / gone).unlink(missing_ok=True)
    for name in brought:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and filecmp.cmp(tree / name, target, shallow=False)):
            shutil.copy2(tree / name, target)
    list_file.write_text(json.dumps(brought), encoding="utf-8")
    allow_no_git(folder)


@command(__doc__, allow_interspersed_args=False)  # job is given a command
@click.argument("folder", help="An absolute path that all nodes share.", type=click.Path())
@click.argument(
    "command", help="The command to run there, after --.", nargs=-1, type=click.UNPROCESSED
)
def main(folder: str, command: Sequence[str]) -> None:
    target, words = arguments(folder, command)
    check_writable(target)
    with alone(target):
        try:
            bring(Path.cwd(), target)
            process = subprocess.run(words, cwd=target)
        except FileNotFoundError as error:
            raise UserError(f"{error.filename}: no such command on this node") from None
    raise SystemExit(process.returncode)
