"""The command line `ftlab`: every command by group, each imported when it is called.

The command `plan` is `main` in pipelines/commands/plan.py, the stage `train` in
pipelines/train/__main__.py. These modules import no more than click, so --help and the shell's
completion are fast. `main` imports what does the work.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from pipelines.host.command_line import CONTEXT, perform
from pipelines.host.errors import UserError, did_you_mean, run
from pipelines.host.files import ROOT, check_project_folder

GROUPS = {  # in the order of --help
    "Daily work": (
        "repro",
        "compose",
        "plan",
        "spreads",
        "sample",
        "ui",
        "plots",
        "experiments",
        "keep",
        "sweep",
    ),
    "Models and data": ("pretrained", "fetch", "export"),
    "Machines": ("doctor", "job", "tracking"),
    "Stages, as DVC runs them": ("data", "tokenize", "train", "evaluate", "suite", "report"),
}


class LazyGroup(click.Group):
    """All commands; a module is imported when its command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, name: str) -> Any:
        if name not in self.list_commands(ctx):
            return None
        stage = name in GROUPS["Stages, as DVC runs them"]
        place = f"{name}.__main__" if stage else f"commands.{name}"
        return import_module(f"pipelines.{place}").main

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if not args[0].startswith("-") and args[0] not in known:
            ctx.fail(f"No such command {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                commands = {name: self.get_command(ctx, name) for name in names}
                rows = [
                    (f"{name:10}", each.get_short_help_str(80)) for name, each in commands.items()
                ]
                formatter.write_dl(rows)


@click.command(cls=LazyGroup, context_settings=CONTEXT, no_args_is_help=False)
@click.version_option(package_name="free-transformer-lab", message="%(version)s")
def ftlab() -> None:
    """Baselines and Free Transformers, compared: docs/commands.md."""


def main() -> None:
    run(of_this_copy)


def of_this_copy() -> None:
    """Do what is asked. Raises UserError in another copy of the project, which has its own code,
    and in any other folder, for every command but `doctor`, which reports it.
    """
    here = Path.cwd()
    if (here / "pipelines/cli.py").exists() and not here.samefile(ROOT):
        raise UserError(f"this ftlab belongs to {ROOT}; here, type python -m pipelines.cli")
    sys.path.insert(0, str(ROOT))  # hydra_plugins is not installed
    is_doctor = sys.argv[1:2] == ["doctor"]
    perform(ftlab, "ftlab", check=None if is_doctor else check_project_folder)


if __name__ == "__main__":
    main()
