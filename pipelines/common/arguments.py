"""Arguments and options of commands, and how a shell completes them."""

from collections.abc import Callable
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

import click
import yaml
from click.shell_completion import CompletionItem

from pipelines.common.atomic_files import ROOT
from pipelines.common.yaml_files import LOADER

SEED = click.IntRange(0, 2**63 - 1)
COUNT = click.IntRange(min=1)
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def positive(text: str) -> float:
    try:
        if 0 < (value := float(text)) < inf:
            return value
    except ValueError:
        pass
    raise click.BadParameter(f"{text} is not a positive number")


def not_negative(text: str) -> float:
    try:
        if 0 <= (value := float(text)) < inf:
            return value
    except ValueError:
        pass
    raise click.BadParameter(f"{text} is not a number of 0 or more")


def jobs(text: str) -> str:
    if text == "ray" or (text.isdecimal() and int(text) > 0):
        return text
    raise click.BadParameter(f"{text} is neither a number from 1 on nor `ray`")


def share(text: str) -> float:
    if (value := positive(text)) > 1:
        raise click.BadParameter(f"{text} is more than 1")
    return value


def not_negative_share(text: str) -> float:
    if (value := not_negative(text)) > 1:
        raise click.BadParameter(f"{text} is more than 1")
    return value


def items(names: Any, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(name)) for name in names if str(name).startswith(incomplete)]


def under(group: str) -> dict[Any, Any]:
    """What params.yaml has under a key, not validated; {} if nothing can be read there."""
    try:
        entries = yaml.load(Path("params.yaml").read_bytes(), LOADER)[group]
    except (OSError, ValueError, RecursionError, yaml.YAMLError, TypeError, KeyError):
        return {}
    return entries if isinstance(entries, dict) else {}


def listed(module: str, attribute: str) -> Completer:
    """Completes the names that a module lists; it is imported then and not before."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        return items(getattr(import_module(module), attribute), incomplete)

    return complete


def entries(group: str) -> Completer:
    """Completes the names under a key of params.yaml."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        return items(under(group), incomplete)

    return complete


def choices(*groups: str) -> Completer:
    """Completes `group=` with the files of conf/<group>/. Bash takes `=` for the end of a word."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        before = [word for word in ctx.params.get(str(param.name)) or () if word != "="]
        for group in groups:
            names = sorted(path.stem for path in Path("conf", group).glob("*.yaml"))
            if before[-1:] == [group]:
                return items(names, incomplete)
            if found := items([f"{group}={name}" for name in names], incomplete):
                return found
        return []

    return complete


def argument(
    name: str, help: str, complete: Completer | None = None, **more: Any
) -> click.Argument:
    return click.Argument([name], help=help, shell_complete=complete, **more)


def option(*names: str, **more: Any) -> click.Option:
    return click.Option(names, **{"show_default": True, **more})


def out_folder(default: str) -> click.Option:
    """Where results go: a folder of the project by default."""
    folder, words = click.Path(path_type=Path), "The folder to write to."
    return option("--out", type=folder, default=ROOT / default, show_default=default, help=words)


def overrides(*groups: str) -> click.Argument:
    words = f"{' and '.join(f'{group}=…' for group in groups)} and any key=value of conf/"
    return argument("overrides", words, choices(*groups), nargs=-1)
