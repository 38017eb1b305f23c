"""The trials of a sweep: points of its space of settings, each composed into an experiment of its
own and validated before any work starts.

Random settings are drawn here, from the sweep's seed: the same command means the same trials.
"""

import math
import random
import re
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ftmodel.designs.design import LatentDesign
from ftmodel.model.config import ModelConfig
from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config.data import ProcessData
from pipelines.config.derived import trainings
from pipelines.config.load import parse
from pipelines.config.schema import Experiment, Optim, Run
from pipelines.sweep.schema import Sweep, read_sweep

GROUPS: dict[str, type] = {"run": Run, "architecture": ModelConfig, "optim": Optim}
LATENT = (
    "architecture.latent",
    "run.latent",
    "run.kappa_warmup_",
)  # settings that mean nothing to a baseline
GRID = "grid"
DRAWN = ("choice", "uniform", "loguniform")
DIGITS = 4  # significant digits of a number drawn at random, so that names are readable

Settings = dict[str, Any]  # by dotted key


@dataclass(frozen=True)
class Dimension:
    """One setting that a sweep varies: a grid, or how to draw it."""

    key: str  # run.kappa_bits, say
    kind: str  # grid, or one of DRAWN
    values: tuple[Any, ...]

    def draw(self, seed: int, sample: int) -> Any:
        """Depends on nothing else: more samples, or other dimensions, keep the earlier draws."""
        rng = random.Random(f"{seed}/{sample}/{self.key}")
        if self.kind == "choice":
            return rng.choice(self.values)
        low, high = self.values
        if self.kind == "uniform":
            value = rng.uniform(low, high)
        else:
            value = math.exp(rng.uniform(math.log(low), math.log(high)))
        return min(max(float(f"{value:.{DIGITS}g}"), low), high)


@dataclass(frozen=True)
class Plan:
    """A sweep with its trials: each an experiment of one run, by the trial's name."""

    name: str
    sweep: Sweep
    settings: dict[str, Settings]  # of each trial
    trials: dict[str, Experiment]

    @property
    def experiment(self) -> str:
        """The experiment that the trials are runs of; a name that no file of conf/ clashes with."""
        return f"sweep_{self.name}"

    @property
    def data(self) -> list[str]:
        """Names of the data sets to train on."""
        return sorted({self.trials[name].runs[name].data for name in self.trials})

    @property
    def unit(self) -> str:
        """What bounds of trials are compared in: tokens differ between tokenizers, bytes do not."""
        return "bits_per_token" if len(self.data) == 1 else "bits_per_byte"

    @property
    def swept(self) -> list[str]:
        """The keys that differ between trials; one with a single value is only set."""
        values: dict[str, set[Any]] = {}
        for settings in self.settings.values():
            for key, value in settings.items():
                values.setdefault(key, set()).add(value)
        return [key for key, different in values.items() if len(different) > 1]


def read_space(space: dict[str, Any], prefix: str = "") -> list[Dimension]:
    """The dimensions of a space, nested or with dotted keys; raises ValueError with the key."""
    dimensions: list[Dimension] = []
    for name, entry in space.items():
        key = f"{prefix}{name}"
        if not isinstance(entry, dict) or not entry:
            raise ValueError(f"space.{key}: not a mapping such as {{grid: […]}}")
        if set(entry) & {GRID, *DRAWN}:
            dimensions.append(read_dimension(key, entry))
        else:
            dimensions += read_space(entry, f"{key}.")
    return dimensions


def read_dimension(key: str, entry: dict[str, Any]) -> Dimension:
    group, _, name = key.partition(".")
    if group not in GROUPS:
        raise ValueError(f"space.{key}: no such setting; a key starts with {', '.join(GROUPS)}")
    types = {f.name: f.type for f in fields(GROUPS[group]) if f.name != "latent"}
    if group == "architecture":
        types |= {f"latent.{f.name}": f.type for f in fields(LatentDesign)}
    if name not in types:
        raise ValueError(f"space.{key}: no such setting; {group} has {', '.join(types)}")
    if len(entry) > 1:
        raise ValueError(f"space.{key}: one of {', '.join((GRID, *DRAWN))}, not several")
    ((kind, values),) = entry.items()
    if not isinstance(values, list) or not values:
        raise ValueError(f"space.{key}.{kind}: not a list of values")
    if any(isinstance(value, list | dict) for value in values):
        raise ValueError(f"space.{key}.{kind}: values are single numbers, words or null")
    if kind in ("uniform", "loguniform"):
        check_range(f"space.{key}.{kind}", kind, values)
        if types[name] is int:
            raise ValueError(
                f"space.{key}.{kind}: {name} is a whole number; list values with grid or choice"
            )
    return Dimension(key, kind, tuple(values))


def check_range(key: str, kind: str, values: list[Any]) -> None:
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    if len(values) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise ValueError(f"{key}: {values} is not [lowest, highest]")
    if kind == "loguniform" and numbers[0] <= 0:
        raise ValueError(f"{key}: the lowest, {numbers[0]}, must be positive")


def points(dimensions: list[Dimension], samples: int, seed: int) -> list[Settings]:
    """Every point of the grid with every draw, in the order of the file; draws vary slowest."""
    grid = [d for d in dimensions if d.kind == GRID]
    drawn = [d for d in dimensions if d.kind != GRID]
    if samples > 1 and not drawn:
        raise ValueError(f"samples: {samples}, but space has nothing that is drawn at random")
    settings = []
    for sample in range(samples):
        random_part = {d.key: d.draw(seed, sample) for d in drawn}
        for combination in product(*(d.values for d in grid)):
            chosen = dict(zip((d.key for d in grid), combination, strict=True)) | random_part
            settings.append({d.key: chosen[d.key] for d in dimensions})
    return settings


def trial_name(settings: Settings) -> str:
    """Readable, determined by the settings, and valid as a name in DVC: kappa_bits_0p125_seed_0."""
    leaves = [key.rpartition(".")[2] for key in settings]
    words = []
    for (key, value), leaf in zip(settings.items(), leaves, strict=True):
        label = leaf if leaves.count(leaf) == 1 else key
        words.append("baseline" if key == "run.kappa_bits" and value is None
                     else f"{label}_{value_name(value)}")  # fmt: skip
    return re.sub("[^a-z0-9]+", "_", "_".join(words).lower()).strip("_")


def value_name(value: Any) -> str:
    """1 and 1.0 are the same value; p is the decimal point, m the minus sign."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).replace(".", "p").replace("-", "m").replace("+", "")
    return "none" if value is None else str(value)


def trial_experiment(
    base: dict[str, Any], run_name: str, sweep_name: str, name: str, settings: Settings, source: str
) -> Experiment:
    """The base experiment with ``name`` for its only run, the base run with these settings."""
    run = dict(base["runs"][run_name])
    run |= {key[4:]: value for key, value in settings.items() if key.startswith("run.")}
    if run["kappa_bits"] is None:
        run |= {"kappa_warmup_steps": 0, "latent_bits": None, "latent_block": None}
    models = dict(base["models"])
    if run["model"] in models:  # if not, validation says so
        preset = OmegaConf.create(models[run["model"]])
        for key, value in settings.items():
            if not key.startswith("run."):
                OmegaConf.update(preset, key, value)
        models[run["model"]] = preset
    changed = {
        **base,
        "name": f"sweep_{sweep_name}",
        "models": models,
        "runs": {name: run},
        "arms": {},
        "seeds": [],
        "suite": {**base["suite"], "name": "none", "tasks": {}},  # trials are ranked by bounds
        "suite_runs": {},
        "trainings": trainings({name: run}, f"sweep_{sweep_name}"),
        "question": None,  # that of the experiment, about its own arms
        "expectation": [],
    }
    return parse(OmegaConf.create(changed), source)


def identity(experiment: Experiment, name: str) -> str:
    """Equal for runs that are trained alike: H, for example, does not matter without a latent."""
    run = experiment.runs[name]
    parts = {
        "run": run,
        "architecture": experiment.model_config(run),
        "optim": experiment.models[run.model].optim,
    }
    settings = {
        f"{g}.{key}": value for g, part in parts.items() for key, value in vars(part).items()
    }
    if run.kappa_bits is None:
        settings = {key: value for key, value in settings.items() if not key.startswith(LATENT)}
    return repr(settings)


def make_plan(name: str, sweep: Sweep, config: DictConfig) -> Plan:
    """All trials of a sweep over the composed base experiment ``config``, validated; raises
    UserError naming what to mend.
    """
    source = f"conf/sweep/{name}.yaml"
    parse(config.copy(), f"conf/experiment/{sweep.experiment}.yaml")
    base: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    if sweep.run not in base["runs"]:
        known = ", ".join(base["runs"])
        raise UserError(f"{source}: run: {sweep.run!r} is not one of {known} ({sweep.experiment})")
    settings: dict[str, Settings] = {}
    trials: dict[str, Experiment] = {}
    seen = set()
    try:
        if not sweep.space:
            raise ValueError("space: empty; a sweep needs at least one setting")
        dimensions = read_space(sweep.space)
        keys = [d.key for d in dimensions]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ValueError(f"space.{twice[0]}: given twice, nested and with dots")
        varied = [d.key for d in dimensions if len(d.values) > 1] or keys
        for point in points(dimensions, sweep.samples, sweep.seed):
            trial = trial_name({key: point[key] for key in varied})
            experiment = trial_experiment(base, sweep.run, name, trial, point, source)
            if (same := identity(experiment, trial)) in seen:
                continue
            if trial in trials:
                raise ValueError(f"space: two different trials would be called {trial}")
            seen.add(same)
            settings[trial], trials[trial] = point, experiment
        plan = Plan(name, sweep, settings, trials)
        check_comparable(plan)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    return plan


def check_comparable(plan: Plan) -> None:
    """Raise ValueError unless there is a unit in which all trials may be compared."""
    if len(plan.data) == 1:
        return
    known = next(iter(plan.trials.values())).data
    texts = [{**asdict(known[name]), "vocab_size": None, "tokenizer": None} for name in plan.data]
    if any(isinstance(known[name], ProcessData) or text != texts[0]
           for name, text in zip(plan.data, texts, strict=True)):  # fmt: skip
        raise ValueError(
            f"space.run.data: bounds on {' and '.join(plan.data)} cannot be compared; data of one "
            "sweep may differ in tokenizer alone"
        )
    if plan.sweep.asha:
        raise ValueError(
            "asha: it compares trials in bits per token, which differ between the tokenizers of "
            f"{' and '.join(plan.data)}"
        )


def compose_plan(name: str, overrides: list[str]) -> tuple[Plan, DictConfig]:
    """The plan of a sweep and its composed base experiment."""
    sweep, others = read_sweep(name, overrides)
    config = compose_config([f"experiment={sweep.experiment}", *others])
    return make_plan(name, sweep, config), config
