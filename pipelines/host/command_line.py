"""Declares commands and their arguments, says how a shell completes them, and runs them."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import click
import yaml
from click.shell_completion import CompletionItem

from pipelines.host.errors import UserError, run
from pipelines.host.files import LOADER, ROOT, check_writable

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Declaration = Callable[[Callable[..., None]], Callable[..., None]]

CONTEXT = {"max_content_width": 100, "show_default": True}


class Command(click.Command):
    """A command whose work is done outside click, so that its exceptions are not click's."""

    def invoke(self, ctx: click.Context) -> Any:
        """Return the work to do: ``perform`` does it."""
        assert self.callback is not None
        return partial(self.callback, **ctx.params)


def command(description: str | None, **settings: Any) -> Callable[..., click.Command]:
    """Declares a command; ``description``, its module's docstring, is its help, line by line."""
    lines = (description or "").strip().replace("\n\n", "\n\n\b\n")
    return click.command(cls=Command, help=f"\b\n{lines}", context_settings=CONTEXT | settings)


class Number(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SEED = click.IntRange(0, 2**63 - 1)
COUNT = click.IntRange(min=1)
POSITIVE = Number(min=0, min_open=True)
NOT_NEGATIVE = Number(min=0)


def jobs(text: str) -> str:
    if text == "ray" or (text.isdecimal() and int(text) > 0):
        return text
    raise click.BadParameter(f"{text} is neither a number of at least 1 nor `ray`")


def items(names: Any, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(name)) for name in names if str(name).startswith(incomplete)]


def under(group: str) -> dict[Any, Any]:
    """The entries under a key of params.yaml, not validated; {} if none can be read."""
    try:
        entries = yaml.load(Path("params.yaml").read_bytes(), LOADER)[group]
    except (OSError, ValueError, RecursionError, yaml.YAMLError, TypeError, KeyError):
        return {}
    return entries if isinstance(entries, dict) else {}


def entries(group: str) -> Completer:
    """Completes the names under a key of params.yaml."""
    return lambda ctx, param, incomplete: items(under(group), incomplete)


def choices(group: str) -> Completer:
    """Completes `group=` with the files of conf/<group>/. Bash takes `=` for the end of a word."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        before = [word for word in ctx.params.get(str(param.name)) or () if word != "="]
        names = sorted(path.stem for path in Path("conf", group).glob("*.yaml"))
        if before[-1:] == [group]:
            return items(names, incomplete)
        return items([f"{group}={name}" for name in names], incomplete)

    return complete


def out_folder(default: str) -> Declaration:
    """Declares --out, the folder for results; by default one of the project's."""
    folder, words = click.Path(path_type=Path), "The folder to write to."
    return click.option(
        "--out", type=folder, default=ROOT / default, show_default=default, help=words
    )


def overrides(group: str) -> Declaration:
    words = f"{group}=…, and any key=value of conf/."
    return click.argument("overrides", help=words, shell_complete=choices(group), nargs=-1)


RUN = click.argument(
    "name", help="A run of params.yaml.", shell_complete=entries("runs"), metavar="RUN"
)
TRAINED = click.argument(
    "run", help="A run of params.yaml that has been trained.", shell_complete=entries("runs")
)
DATASET = click.argument(
    "name", help="An entry of data in params.yaml.", shell_complete=entries("data")
)


# packages that only some commands need, by the extra of pyproject.toml that installs them
EXTRAS = {
    "grpc": "cluster",
    "ray": "cluster",
    "lm_eval": "suite",
    "gguf": "export",
    "transformers": "export",
    "vl_convert": "plots",
}


def run_command(command: click.Command, name: str) -> None:
    """Run a command as an entry point, with the process's arguments."""
    run(partial(perform, command, name))


def perform(
    command: click.Command,
    name: str,
    given: Sequence[str] | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Do what the arguments ask for; raises UserError for wrong usage and a missing package.
    ``check`` is called before the work begins, but not for --help.
    """
    for word in sys.argv[1:] if given is None else given:
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise UserError(f"the argument {word} is not text in UTF-8")
    try:
        work = command.main(given, prog_name=name, standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else name
        raise UserError(f"{error.format_message().rstrip('.')}; see {path} --help") from None
    if not callable(work):  # --help has nothing to do
        return
    if check:
        check()
    if folder := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        # PyTorch's folder for compiled code: it needs one that it can write to
        try:
            check_writable(Path(folder))
        except UserError as error:
            print(f"TORCHINDUCTOR_CACHE_DIR: {error}; left for TMPDIR", file=sys.stderr)
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
    try:
        work()
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise UserError(
            f"{error.name} is not installed: `pip install -c constraints.txt -e "
            f"'.[{extra}]'`; `make` installs all that `make repro` needs"
        ) from None
