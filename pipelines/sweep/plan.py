"""The trials of a sweep: points of its space of settings, each composed into an experiment of its
own and validated before any work starts.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ftmodel.model.limits import check_limits, latent_only
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config.derived import trainings
from pipelines.config.load import parse
from pipelines.sweep.asha import make_scheduler
from pipelines.sweep.schema import Sweep, read_sweep
from pipelines.sweep.space import KEY_GROUPS, Settings, read_space, sweep_points

KAPPA_KEY, SEED_KEY = "run.kappa_bits", "run.seed"
# settings that mean nothing to a baseline, with their defaults
LATENT_SETTINGS = {
    key: default
    for group, settings in KEY_GROUPS.items()
    for key, default in latent_only(settings, group).items()
}


@dataclass(frozen=True)
class SweepPlan:
    """A sweep with its trials: each an experiment of one run, by the trial's name."""

    name: str
    sweep: Sweep
    base: dict[str, Any]  # the composed experiment that trials start from
    settings: dict[str, Settings]  # of each trial
    arms: dict[str, str]  # by trial; those that differ in their seed alone have one arm
    trials: dict[str, RunSpec]

    @property
    def experiment(self) -> str:
        """The experiment whose runs the trials are; its name clashes with no file of conf/."""
        return f"sweep_{self.name}"

    @property
    def first(self) -> RunSpec:
        """Any of the trials, for what they share."""
        return next(iter(self.trials.values()))


def trial_name(settings: Settings) -> str:
    """A readable name, determined by the settings and valid in DVC: kappa_bits_0p125_seed_0."""
    leaves = [key.rpartition(".")[2] for key in settings]
    words = []
    for (key, value), leaf in zip(settings.items(), leaves, strict=True):
        label = leaf if leaves.count(leaf) == 1 else key
        baseline = key == KAPPA_KEY and value is None
        words.append("baseline" if baseline else f"{label}_{value_name(value)}")
    return re.sub("[^a-z0-9]+", "_", "_".join(words).lower()).strip("_")


def value_name(value: Any) -> str:
    """A value in a name: 1 and 1.0 are the same, p is the decimal point, m the minus sign."""
    if value is None or isinstance(value, str):
        return value or "none"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace(".", "p").replace("-", "m").replace("+", "")


def of_latent(key: str) -> bool:
    """Whether a setting means nothing to a baseline, alone or as part of such a group."""
    return any(f"{key}.".startswith(f"{known}.") for known in LATENT_SETTINGS)


def trial_spec(plan: SweepPlan, name: str, settings: Settings) -> RunSpec:
    """The base run and its model with these settings, in the base experiment as its only run."""
    base = plan.base
    run = base["runs"][plan.sweep.run]
    known = base["models"].get(settings.get("run.model", run["model"]))  # None: no such model
    node: Any = OmegaConf.create({"run": run, **(known or {})})
    for key, value in settings.items():
        OmegaConf.update(node, key, value)
    if node.run.kappa_bits is None:
        for key, default in LATENT_SETTINGS.items():
            if key.startswith("run."):  # the preset's may stay: checks let them pass
                OmegaConf.update(node, key, default)
    preset: Any = OmegaConf.to_container(node)
    run = preset.pop("run")
    changed = {
        "name": plan.experiment,
        "models": base["models"] | ({run["model"]: preset} if known else {}),
        "runs": {name: run},
        "arms": {},
        "seeds": [],
        "suite": base["suite"] | {"name": "none", "tasks": {}},  # bounds are what is compared
        "suite_runs": {},
        "trainings": trainings({name: run}, plan.experiment),
        "question": None,  # the experiment asks about its own arms
        "expectation": [],
    }
    config = OmegaConf.create(base | changed)
    return RunSpec(parse(config, f"conf/sweep/{plan.name}.yaml"), name)


def compose_plan(name: str, overrides: list[str]) -> tuple[SweepPlan, DictConfig]:
    """All trials of a sweep, validated, and its composed base experiment; raises UserError."""
    sweep, others = read_sweep(name, overrides)
    source = f"conf/sweep/{name}.yaml"
    config = compose_config([f"experiment={sweep.experiment}", *others])
    parse(config.copy(), f"conf/experiment/{sweep.experiment}.yaml")
    base: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    if sweep.run not in base["runs"]:
        known = ", ".join(base["runs"])
        raise UserError(f"{source}: run: {sweep.run!r} is not one of {known} ({sweep.experiment})")
    plan = SweepPlan(name, sweep, base, {}, {}, {})
    try:
        check_limits(sweep)
        make_scheduler(sweep.asha, Path())
        if not sweep.space:
            raise ValueError("space: empty; a sweep needs at least one setting")
        space = read_space(sweep.space)
        every = [*sweep_points(space, sweep.samples, sweep.seed)]
        varied = [key for key in space if any(p[key] != every[0][key] for p in every)] or [*space]
        for point in every:
            settings = {key: point[key] for key in space}
            if settings.get(KAPPA_KEY, base["runs"][sweep.run]["kappa_bits"]) is None:
                settings = {k: v for k, v in settings.items() if not of_latent(k)}
            if settings in plan.settings.values():
                continue
            named = {key: settings[key] for key in varied if key in settings}
            trial = trial_name(named)
            if trial in plan.trials:
                raise ValueError(f"space: two different trials would be called {trial}")
            plan.settings[trial] = settings
            plan.arms[trial] = (
                trial_name({k: v for k, v in named.items() if k != SEED_KEY}) or sweep.run
            )
            plan.trials[trial] = trial_spec(plan, trial, settings)
        if len(names := {spec.run.data for spec in plan.trials.values()}) > 1:
            known = " and ".join(sorted(names))
            raise ValueError(f"space.run.data: bounds on {known} cannot be compared")
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    return plan, config
