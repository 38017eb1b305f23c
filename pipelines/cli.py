"""The command line: `ftlab <command> …` is `python -m pipelines.<command> …`.

A command is a module with a `main`: its docstring is what --help says, and decorators above `main`
declare what it takes. Both are read without importing the module: torch alone takes seconds.
"""

import ast
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from pipelines.commands import arguments
from pipelines.host import errors
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT, check_writable

SETTINGS = {"max_content_width": 100, "show_default": True}
# packages that only some commands need, by the extra of pyproject.toml that installs them
EXTRAS = {
    **{"grpc": "cluster", "ray": "cluster", "lm_eval": "suite"},
    **{"gguf": "export", "transformers": "export", "vl_convert": "plots"},
}
COMMANDS = {  # in the order of --help: the module of each
    **{name: f"pipelines.{name}" for name in ("compose", "repro", "plan", "doctor", "inputs")},
    **{name: f"pipelines.{name}.build" for name in ("data", "tokenize")},
    **{name: f"pipelines.{name}.stage" for name in ("train", "evaluate", "suite")},
    "report": "pipelines.report.page",
    "sample": "pipelines.sample",
    "sweep": "pipelines.sweep.tune",
    "fetch": "pipelines.fetch",
    "keep": "pipelines.keep",
    "pretrained": "pipelines.pretrained",
    "export": "pipelines.export.build",
    "plots": "pipelines.plots",
    "tracking": "pipelines.tracking.__main__",
    "ui": "pipelines.ui",
    "job": "pipelines.job",
    "perf": "perf.__main__",
    "scores": "perf.scores",
    "gpu": "perf.gpu.__main__",
}


def declared(module: str) -> tuple[str, list[click.Parameter]]:
    """The docstring of a command's module, and what the decorators above its `main` declare."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (main,) = (x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name == "main")

    def declaration() -> None: ...

    for decorator in reversed(main.decorator_list):
        eval(compile(ast.Expression(decorator), path, "eval"), vars(arguments))(declaration)
    return ast.get_docstring(tree) or "", getattr(declaration, "__click_params__", [])[::-1]


def give_cache() -> None:
    """Make sure that PyTorch's folder for compiled code is writable: its modules need one."""
    if folder := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        try:
            check_writable(Path(folder))
        except UserError as error:
            print(f"TORCHINDUCTOR_CACHE_DIR: {error}; left for TMPDIR", file=sys.stderr)
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]


def command(name: str) -> click.Command:
    """The click command. It returns the work to do: errors.run does it, not click."""
    words, params = declared(COMMANDS[name])
    return click.Command(
        name,
        params=params,
        help="\b\n" + words.replace("\n\n", "\n\n\b\n"),  # its lines as they stand
        callback=lambda **given: partial(work, name, given),
        # job is given a command
        context_settings={**SETTINGS, "allow_interspersed_args": name != "job"},
    )


def work(name: str, given: dict[str, Any]) -> None:
    give_cache()
    try:
        import_module(COMMANDS[name]).main(**given)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise UserError(
            f"{error.name} is not installed: `pip install -c constraints.txt -e "
            f"'.[{extra}]'`; `make` installs all that `make repro` needs"
        ) from None


class Commands(click.Group):
    """All commands, each made when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return command(name) if name in COMMANDS else None


def perform(asked: click.Command, called: str, given: Sequence[str] | None = None) -> None:
    """Do what the command line, or ``given``, asks for; raises UserError for wrong usage."""
    try:
        done = asked.main(given, prog_name=called, standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else called
        raise UserError(f"{error.format_message().rstrip('.')}; see {path} --help") from None
    if callable(done):  # the work of a command: --help gives none
        done()


def quiet_bars() -> None:
    """Turn off progress bars of other libraries without a terminal, before they import tqdm."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


def run(name: str) -> None:
    """Run `python -m pipelines.<name>`."""
    package = COMMANDS[name].partition(".")[0]
    called = f"python -m {package}{'' if package == name else f'.{name}'}"
    quiet_bars()
    errors.run(partial(perform, command(name), called))


def main() -> None:
    """Run `ftlab`."""
    group = Commands(
        "ftlab",
        help=(__doc__ or "").partition("\n\n")[0],
        no_args_is_help=False,
        context_settings=SETTINGS,
    )
    quiet_bars()
    errors.run(partial(of_this_copy, partial(perform, group, "ftlab")))


def of_this_copy(work: Callable[[], None]) -> None:
    """Do the work; raises UserError in another copy of the project, which has its own code."""
    here = Path.cwd()
    if (here / "pipelines/cli.py").exists() and not here.samefile(ROOT):
        raise UserError(f"this ftlab belongs to {ROOT}; here, type python -m pipelines.<command>")
    sys.path.insert(0, str(ROOT))  # perf and tests are not installed
    work()


if __name__ == "__main__":
    main()
