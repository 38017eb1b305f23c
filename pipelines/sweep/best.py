"""The best settings of a sweep, as an ordinary experiment: conf/experiment/<sweep>_best.yaml.

They were chosen for their bounds, so the sweep's own figures for them are too good. The experiment
trains them with seeds that no trial has had. Stages evaluate and report it like any other.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from omegaconf import OmegaConf

from ftmodel.model.config import ModelConfig
from pipelines.common.atomic_files import write_file
from pipelines.common.errors import UserError
from pipelines.compose import CONF, compose_valid
from pipelines.config.schema import Arm, Experiment, Optim
from pipelines.sweep.outcome import TrialOutcome
from pipelines.sweep.plan import SweepPlan, trial_name

WRITTEN_BY = "# Written by `python -m pipelines.sweep sweep={name}`"
EXPERIMENT_HEADER = """\
# @package _global_
{written}: the best settings of {trials} trials,
# with seeds that no trial has had. The settings were chosen by their bounds on the held-out
# documents that this experiment is evaluated on, and the best of many looks better than it is:
# quote the figures of this experiment, not those of the sweep.
"""


def best_arms(plan: SweepPlan, outcomes: Iterable[TrialOutcome]) -> dict[str, str]:
    """A trial of each of the best settings by their arm's name, best first by the mean over the
    seeds that are done. The best baseline is always among them.
    """
    bounds: dict[str, list[float]] = defaultdict(list)
    trials: dict[str, str] = {}
    for outcome in outcomes:
        if outcome.bound:
            arm = plan.arms[outcome.name]
            bounds[arm].append(outcome.bound.mean)
            trials.setdefault(arm, outcome.name)

    def is_baseline(arm: str) -> bool:
        return plan.trials[trials[arm]].run.kappa_bits is None

    ranked = sorted(trials, key=lambda arm: fmean(bounds[arm]))
    chosen = ranked[: plan.sweep.best]
    if not any(map(is_baseline, chosen)):
        chosen += [arm for arm in ranked if is_baseline(arm)][:1]
    return {arm: trials[arm] for arm in chosen}


def best_path(sweep: str) -> Path:
    return CONF / "experiment" / f"{sweep}_best.yaml"


def check_replaceable(path: Path, sweep: str) -> None:
    """Raise UserError for an experiment that was not written by this sweep."""
    if path.exists() and WRITTEN_BY.format(name=sweep) not in path.read_text(encoding="utf-8"):
        raise UserError(f"{path}: not written by the sweep, which would replace it; rename it")


def plain(settings: Any) -> Any:
    """A dataclass as plain data for YAML; a class stands for its defaults."""
    return OmegaConf.to_container(OmegaConf.structured(settings), enum_to_str=True)


def without_defaults(value: Any, default: Any) -> Any:
    """Settings that differ from their defaults."""
    if not isinstance(value, dict) or not isinstance(default, dict):
        return value
    return {
        key: without_defaults(each, default.get(key))
        for key, each in value.items()
        if key not in default or each != default[key]
    }


def write_best(plan: SweepPlan, arms: dict[str, str]) -> Path:
    """Write an experiment of the trials' settings with fresh seeds; returns its path."""
    base = plan.base
    runs: dict[str, Any] = {}
    presets: dict[str, Any] = {}
    for arm, trial in arms.items():
        spec, settings = plan.trials[trial], plan.settings[trial]
        run = plain(spec.run)
        if own := {key: value for key, value in settings.items() if not key.startswith("run.")}:
            run["model"] += f"_{trial_name(own)}"  # a size with a recipe of its own
        presets[run["model"]] = plain(spec.experiment.models[spec.run.model])
        del run["seed"]
        runs[arm] = run
    first = 1 + max(spec.run.seed for spec in plan.trials.values())
    data = {run["data"]: base["data"][run["data"]] for run in runs.values()}
    types = [{f"/source@data.{key}": each["source"]} for key, each in data.items()]
    types += [
        {f"/part@data.{key}.parts.{part}": each["source"]}
        for key, entry in data.items()
        for part, each in entry.get("parts", {}).items()
    ]
    whole, arm = plain(Experiment), plain(Arm)
    model = {"architecture": plain(ModelConfig), "optim": plain(Optim)}
    groups = ["compute", "evaluation"]
    groups += ["suite"] * any(entry["source"] == "text" for entry in data.values())
    experiment = {
        "defaults": [*types, "_self_"],
        "name": f"{plan.name}_best",
        "question": f"Do the best settings of sweep {plan.name} hold with new seeds?",
        "data": data,
        "models": {key: without_defaults(preset, model) for key, preset in presets.items()},
        "seeds": [*range(first, first + plan.sweep.best_seeds)],
        "arms": {name: without_defaults(run, arm) for name, run in runs.items()},
        "runs": "${each_seed:${arms},${seeds}}",
        **{key: own for key in groups if (own := without_defaults(base[key], whole[key]))},
    }
    path = best_path(plan.name)
    header = EXPERIMENT_HEADER.format(
        written=WRITTEN_BY.format(name=plan.name), trials=len(plan.trials)
    )
    text = yaml.safe_dump(
        experiment, allow_unicode=True, sort_keys=False, width=110, default_flow_style=None
    )
    write_file(path, header + text)
    compose_valid([f"experiment={path.stem}"])
    return path
