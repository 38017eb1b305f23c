"""Composes conf/ into params.yaml with Hydra, typed and validated."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import realpath
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ReadonlyConfigError

from pipelines.config.data import dotted, keyed
from pipelines.config.load import PARAMS, parse, setting_words
from pipelines.config.schema import Experiment
from pipelines.host.dvc import keep_other_experiments, pipeline_alone
from pipelines.host.errors import UserError, near_names, not_one_of
from pipelines.host.files import ROOT, read_yaml, write_file

CONF = Path("conf")
OVERRIDE = re.compile(r"(?:Error merging override |Could not override ')[+~]*([^=']+)")
PACKAGE = re.compile(r"(\s*(#.*)?\n)*?# @package ")  # at the top of a file of conf/
IN_FILE = re.compile(r"^In '([^']+)'", re.MULTILINE)
FULL_KEY = re.compile(r"full_key: (\S+)")
RESOLVER = "ValueError raised while resolving interpolation: "  # OmegaConf's own words

# where Hydra finds hydra_plugins/: were that installed, every Hydra program would import it
sys.path.append(str(ROOT))


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The composed and resolved configuration, as in params.yaml; raises UserError."""
    with refusals("conf/", overrides):
        with initialize_config_dir(str(CONF.resolve()), version_base=None):
            config = compose("config", [*overrides])
        OmegaConf.resolve(config)
        plain: Any = OmegaConf.to_container(config, enum_to_str=True)
        return OmegaConf.create(plain)


@contextmanager
def refusals(source: str, overrides: Sequence[str]) -> Iterator[None]:
    """Turn errors of Hydra, OmegaConf and the resolvers into UserErrors that begin with ``source``.

    Hydra lets through what Python raises at its input: ValueError, TypeError, RecursionError …
    """
    try:
        yield
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException) as error:
        misplaced = no_package(str(error)) if "ConfigKeyError" in str(error) else ""
        words = misplaced or no_choice(overrides) or refusal_words(error)
        raise UserError(words if words.startswith("conf/") else f"{source}: {words}") from None
    except Exception as error:
        words = broken_file() or no_choice(overrides) or refusal_words(error)
        raise UserError(f"{source}: {words}") from None


def broken_file() -> str | None:
    """What is wrong with the first file of conf/ that cannot be read as YAML."""
    for path in sorted(CONF.rglob("*.yaml")):
        try:
            read_yaml(path)
        except (UserError, OSError) as error:
            return str(error)
    return None


def no_package(error: str) -> str:
    """Name the file of conf/ that Hydra has put in the wrong place, judged by its words on an
    error; "" if that is not the cause.
    """
    places = {"experiment": "_global_", "data": "data.{}", "model": "models.{}"}
    files = [CONF / f"{name}.yaml" for name in IN_FILE.findall(error)]
    if "full_key: data" in error:  # whose file Hydra does not name
        files += sorted((CONF / "data").glob("*.yaml"))
    for path in files:
        place = places.get(path.parent.name, "").format(path.stem)
        text = path.read_text(encoding="utf-8", errors="replace") if place else ""
        if text.startswith("\ufeff"):
            return f"{path} begins with a byte-order mark: save it as UTF-8 without"
        if place and not PACKAGE.match(text):
            return f"{path} lacks its first line, `# @package {place}`"
    return ""


def no_choice(overrides: Sequence[str]) -> str | None:
    """What is wrong with the first override that names no file of its folder in conf/, if any."""
    for override in overrides:
        key, equals, value = override.lstrip("+~").partition("=")
        if equals and key and (CONF / key).is_dir():
            for name in value.strip("[]'\"").split(","):
                if name.strip() not in (known := choices(key)):
                    return f"{key}: {not_one_of(name, known)}"
    return None


def choices(group: str) -> list[str]:
    """The names in a folder of conf/."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def refusal_words(error: Exception) -> str:
    """The error's message. It starts with its key if it comes from a type or a resolver."""
    in_file = IN_FILE.match(str(error))
    file = f"{CONF / in_file[1]}.yaml: " if in_file and in_file[1] != "config" else ""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if (CONF / group).is_dir():
            return f"{file}{group}: {not_one_of(name, choices(group))}"
        known = sorted(path.name for path in CONF.iterdir() if path.is_dir())
        return f"{file}defaults: {not_one_of(group, known)}"
    if isinstance(error, OverrideParseException):
        return unreadable(error.override)
    cause = error.__cause__
    if in_file and isinstance(error, ConfigCompositionException):
        cause = error.__context__  # of a file's content Hydra names no cause
    override = OVERRIDE.match(str(error))
    if override and isinstance(cause, ReadonlyConfigError):
        words = "computed from other settings, such as arms and seeds; override those"
        if override[1].startswith("arms."):
            words = "computed by ${grid}; change its lists in conf/experiment/"
        return f"{override[1]}: {words}"
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        if file or cause.object_type is Experiment:
            folders = sorted(path.name for path in CONF.iterdir() if path.is_dir())
            return file + setting_words(cause, override[1] if override else None, folders)
        if not override or override[1].split(".")[0] == re.split(r"[.\[]", cause.full_key)[0]:
            return keyed(cause)
        if cause.object_type:  # of an entry of a list, whose number OmegaConf does not say
            return f"{override[1]}: {keyed(cause)}"
        # OmegaConf refuses a mapping for one typed entry, not for the entries, and names no parent
        group = override[1].partition(f".{cause.full_key}")[0]
        return f"{override[1]}: an entry is added as +{group}={{{cause.full_key}: {{…}}}}"
    if isinstance(error, OverflowError) and (key := FULL_KEY.search(str(error))):  # of float()
        return f"{dotted(key[1])}: too large for a number"
    words = str(error).removeprefix(RESOLVER)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return "; ".join(lines) or type(error).__name__


def unreadable(override: str) -> str:
    """Says why Hydra cannot read an override."""
    if "=" not in override:
        near = near_names(override, choices("experiment"))
        hint = f"; did you mean experiment={near[0]}?" if near else ", as in experiment=quickstart"
        return f"{override!r}: a setting is written key=value{hint}"
    return (
        f"{override!r} cannot be read as key=value; a value with spaces or brackets has quotes of "
        "its own: key='\"a b\"'"
    )


def write_params(config: DictConfig) -> None:
    """Write a validated configuration to params.yaml, if that says something else."""
    content = OmegaConf.to_yaml(config).encode()
    path = Path(realpath(PARAMS))  # through a link, if it leads anywhere
    try:
        unchanged = path.exists() and path.read_bytes() == content
        if not unchanged:
            write_file(path, content)
    except OSError as error:
        raise UserError(f"{PARAMS}: {error.strerror}") from None
    if not unchanged:
        print(
            f"{PARAMS}: experiment {config.name}, {len(config.runs)} runs; `git checkout {PARAMS}` "
            "brings back the committed one"
        )


def compose_valid(overrides: Sequence[str]) -> DictConfig:
    """The composed configuration; raises UserError if it is not valid."""
    config = compose_config(overrides)
    parse(config, "conf/" + (f" with {' '.join(overrides)}" if overrides else ""))
    return config


def main(overrides: Sequence[str]) -> None:
    config = compose_valid(overrides)
    with pipeline_alone(what="ftlab compose"):
        write_params(config)
    keep_other_experiments()
