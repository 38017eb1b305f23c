"""The parameters of a stage as they are when it starts.

DVC records in dvc.lock what params.yaml says when a stage has ended. A stage therefore compares its
parameters with the file before it hands on its result. Otherwise a file composed anew in the
meantime would be recorded as what made the result.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.config.load import PARAMS, check_listed, parse, read_params
from pipelines.config.schema import Experiment

REUSED = " and are reused if you revert the change"
Check = Callable[[], None]  # raises UserError if a result may not be handed on


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
    scope = {"wanted": entry.get("do", entry)["params"]}
    if name is not None:
        group = entry["foreach"].removeprefix("${").removesuffix("}")
        check_listed(experiment, "runs" if group == "trainings" else group, name)
        scope |= {"key": name, "item": params[group][name]}
    keys = OmegaConf.create(scope)["wanted"]  # resolves "runs.${key}" as DVC does
    return Frozen(experiment, f"{stage}@{name}" if name else stage, select(params, keys))


def select(params: DictConfig, keys: Any) -> dict[str, Any]:
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
