"""Reads params.yaml, typed and validated, for a stage: every mistake is one line with its key.

DVC records in dvc.lock what params.yaml says when a stage has ended. A stage therefore compares its
parameters with the file before it hands on its result (:class:`Frozen`). Otherwise a file composed
anew in the meantime would be recorded as what made the result.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines.config.checks import check, too_large
from pipelines.config.data import TextData, dotted, keyed, merge_data, structured
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError, did_you_mean, near_names
from pipelines.host.files import ROOT, read_yaml

PARAMS = Path("params.yaml")
REUSED = " and are reused if you revert the change"
PARAMS_HINT = "`make repro` and `ftlab compose` write every setting"
DATA_HINT = "entries of data start from /source and their parts from /part, as in conf/data/"

Check = Callable[[], None]  # raises UserError if a result may not be handed on


def load_experiment(path: Path = PARAMS) -> Experiment:
    """Read and validate ``params.yaml``; raises UserError naming the file and the dotted key."""
    return parse(read_params(path), str(path))


def read_params(path: Path = PARAMS) -> DictConfig:
    """Read ``params.yaml`` without validation; raises UserError if it is not a mapping."""
    try:
        node = OmegaConf.load(StringIO(read_yaml(path)))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: `make repro` composes it from conf/") from None
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(node, DictConfig):
        raise UserError(f"{path}: not a mapping")
    return node


def parse(node: DictConfig, source: str) -> Experiment:
    """Validate a composed configuration; raises UserError naming ``source`` and the dotted key."""
    try:
        merged = OmegaConf.merge(structured(Experiment), node)
        OmegaConf.resolve(merged)
        data = {
            name: merge_data(source, f"data.{name}", entry) for name, entry in merged.data.items()
        }
        merged.data = {}
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise UserError(f"{source}: {dotted(missing[0])} is missing")
        experiment = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise UserError(f"{source}: {setting_words(error)}") from None
    except OverflowError:  # of float(), to which OmegaConf adds no key
        words = next(too_large(OmegaConf.to_container(node)))
        raise UserError(f"{source}: {words}") from None
    assert isinstance(experiment, Experiment)
    experiment.data = data
    for expectation in experiment.expectation:
        if expectation.smallest_effect is None:
            expectation.smallest_effect = experiment.smallest_effect
    try:
        check(experiment)
    except ValueError as error:
        raise UserError(f"{source}: {' '.join(str(error).split())}") from None
    for key in left_out(asdict(experiment), node):
        hint = DATA_HINT if key.startswith("data.") else PARAMS_HINT
        raise UserError(f"{source}: {key} is missing; {hint}")
    return experiment


def setting_words(
    error: OmegaConfBaseException, key: str | None = None, others: Iterable[str] = ()
) -> str:
    """What is wrong with a setting. Of one that no experiment has it names those like it: where its
    name stands further down, or else similar names. ``key``: the whole dotted key, where OmegaConf
    stopped at its first name. ``others``: names that may stand there besides settings.
    """
    if error.object_type is not Experiment or not isinstance(error, AttributeError | KeyError):
        return keyed(error)
    key = key or str(error.full_key)
    top = dict.fromkeys([*(field.name for field in fields(Experiment)), *others])
    by_end: dict[str, list[str]] = {}
    for place in places(Experiment):
        by_end.setdefault(".".join(place.split(".")[-key.count(".") - 1 :]), []).append(place)
    meant = by_end.get(key) or near_names(key.partition(".")[0], top)
    if not meant and (near := near_names(key, by_end)):
        meant = by_end[near[0]]
    hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
    return f"{key}: {str(error.key)!r} is not one of {', '.join(top)}{hint}"


def places(kind: Any, prefix: str = "") -> Iterator[str]:
    """The dotted keys of all settings that a user writes, <name> standing for an entry's name."""
    for setting in fields(kind):
        if setting.name in ("suite_runs", "trainings"):  # made by conf/
            continue
        key = prefix + setting.name
        if get_origin(setting.type) is dict:
            key += ".<name>"
        yield key
        inner = [setting.type, *get_args(setting.type)]
        for each in [TextData] if key == "data.<name>" else filter(is_dataclass, inner):
            yield from places(each, f"{key}.")


def left_out(
    complete: Mapping[str, Any], given: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Dotted keys that the file leaves out: DVC would not see it if their default here changed."""
    for key, value in complete.items():
        if key not in given:
            yield f"{prefix}{key}"
        elif isinstance(value, dict):
            yield from left_out(value, given[key], f"{prefix}{key}.")
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from left_out(entry, given[key][i], f"{prefix}{key}.{i}.")


def check_listed(experiment: Experiment, group: str, name: str) -> None:
    """Raise UserError unless ``name`` is in a group of the experiment."""
    known = getattr(experiment, group)
    if name not in known:
        raise UserError(
            f"{name!r} is not under {group} in params.yaml: {', '.join(known)}"
            f"{did_you_mean(name, known)}"
        )


def load_stage(group: str, name: str) -> Experiment:
    """The validated experiment; raises UserError unless ``name`` is in its ``group``."""
    experiment = load_experiment()
    check_listed(experiment, group, name)
    return experiment


def unchecked() -> None:
    """Check nothing, for work that no stage of DVC does."""


@dataclass(frozen=True)
class Frozen:
    """The experiment that a stage works on, and the stage's settings that DVC records."""

    experiment: Experiment
    stage: str  # "train@baseline"
    params: dict[str, Any]  # by the dotted keys that dvc.yaml lists for the stage

    def check(self, kept: str) -> None:
        """Raise UserError if params.yaml has changed; ``kept`` says what becomes of the work."""
        words = first_difference(self.params, select(read_params(), self.params))
        if words:
            raise UserError(
                f"{PARAMS} changed while {self.stage} was running ({words}). The result was "
                f"discarded; {kept}"
            )


def freeze(stage: str, name: str | None = None) -> Frozen:
    """Read what params.yaml says about a stage and its entry ``name``; UserError if not valid."""
    params = read_params()
    experiment = parse(params, str(PARAMS))
    entry = yaml.safe_load((ROOT / "dvc.yaml").read_bytes())["stages"][stage]
    keys = entry.get("do", entry)["params"]
    if name is not None:
        group = entry["foreach"].removeprefix("${").removesuffix("}")
        check_listed(experiment, "runs" if group == "trainings" else group, name)
        item = params[group][name]
        # as DVC does: runs.${key}, models.${item.model}
        keys = [key.replace("${key}", name) for key in keys]
        keys = [re.sub(r"\$\{item\.(\w+)\}", lambda field: item[field[1]], key) for key in keys]
    return Frozen(experiment, f"{stage}@{name}" if name else stage, select(params, keys))


def select(params: DictConfig, keys: Iterable[str]) -> dict[str, Any]:
    """Plain values by dotted key; None for a missing key."""
    values = {key: OmegaConf.select(params, key) for key in keys}
    return {
        key: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        for key, value in values.items()
    }


def first_difference(then: Any, now: Any, key: str = "") -> str:
    """The first value that differs, in words that start with its dotted key; "" if none does."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for part in {**then, **now}:
            below = f"{key}.{part}" if key else str(part)
            if words := first_difference(then.get(part), now.get(part), below):
                return words
        return ""
    return "" if then == now else f"{key} was {in_yaml(then)} and is {in_yaml(now)} now"


def in_yaml(value: Any) -> str:
    plain = json.loads(json.dumps(value))  # YAML takes no Enum
    return yaml.safe_dump(plain, width=float("inf"), default_flow_style=True).partition("\n")[0]
