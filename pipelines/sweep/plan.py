"""The trials of a sweep: points of its space of settings, each composed into an experiment of its
own and validated before any work starts.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from inspect import signature
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from omegaconf import MISSING, DictConfig, OmegaConf
from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import sample
from ray.tune.search.variant_generator import generate_variants

from ftmodel.config import ModelConfig, check_limits, latent_only, limited
from pipelines.artifacts.results import Estimate
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.compose import CONF, compose_config, refusals
from pipelines.config.data import typed
from pipelines.config.derived import trainings
from pipelines.config.load import parse
from pipelines.config.schema import Optim, Run
from pipelines.host.console import aligned
from pipelines.host.errors import UserError

# The outcomes of trials, and a table of all of them.

# what a trial reports to Tune: the first two while it trains, and at last all
FRACTION, TRAINING_BOUND = "fraction", "training_bound_bits"
BOUND, ERROR = "bound", "standard_error"  # held out

DONE, STOPPED, FAILED = "done", "stopped early", "failed"


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended."""

    name: str
    state: str  # DONE, STOPPED or FAILED
    share: float  # of its budget that it was trained for
    bound: Estimate | None = None  # held out; of a trial that is done
    error: str = ""

    @classmethod
    def of(cls, name: str, last: Mapping[str, Any], error: object) -> "TrialOutcome":
        """The outcome from a trial's ``last`` report, and Tune's error if there is one."""
        share = last.get(FRACTION, 0.0)
        if error:
            return cls(name, FAILED, share, error=in_one_line(error))
        if BOUND not in last:
            return cls(name, STOPPED, share)
        return cls(name, DONE, share, Estimate(last[BOUND], last[ERROR]))

    def __str__(self) -> str:
        """The outcome in a few words."""
        if self.bound:
            return f"bound {self.bound}"
        at = f"{self.state}, at {self.share:.0%} of its budget"
        return f"{at}: {self.error}" if self.error else at


def in_one_line(error: object) -> str:
    """What ended a trial: an exception of its own, or the loss of its process."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    words = " ".join(str(cause).split())
    return words if isinstance(cause, UserError | str) else f"{type(cause).__name__}: {words}"


def by_bound(outcomes: Iterable[TrialOutcome]) -> list[TrialOutcome]:
    """Sort by held-out bound, lowest first; outcomes without one are last, by how far they came."""
    return sorted(outcomes, key=lambda o: (o.bound.mean if o.bound else inf, -o.share))


def trial_table(outcomes: Iterable[TrialOutcome]) -> list[str]:
    """Lines of a table of all trials, best first."""
    rows = [["trial", "state", "budget", "bound, bits per token"]]
    for o in by_bound(outcomes):
        rows.append([o.name, o.state, f"{o.share:.0%}", str(o.bound or o.error or "–")])
    return aligned(rows)


# Tune's ASHA stops the worse trials early (asynchronous successive halving, arXiv 1810.05934).
#
# Trials are compared by their training bound, because there is no other while a model trains.


class RememberedAsha(ASHAScheduler):
    """Keeps ASHA's state in the file ``memory``, because Tuner.restore does not bring it back."""

    def __init__(self, memory: Path, **settings: Any) -> None:
        own: Any = {"time_attr": FRACTION, "max_t": 1.0, "metric": TRAINING_BOUND, "mode": "min"}
        super().__init__(**own, stop_last_trials=False, **{"grace_period": 0.1} | settings)
        with suppress(FileNotFoundError):
            self.restore(str(memory))
        self.memory = memory

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = super().on_trial_result(tune_controller, trial, result)
        partial = f"{self.memory}.partial"
        self.save(partial)
        os.replace(partial, self.memory)
        return decision


def make_scheduler(asha: dict[str, Any] | None, folder: Path) -> TrialScheduler:
    """The scheduler of the trials; raises ValueError for settings that Tune does not take."""
    if asha is None:
        return FIFOScheduler()
    try:
        return RememberedAsha(folder / "asha.pkl", **asha)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"asha: {error}") from None


# conf/sweep/<name>.yaml: a base experiment, one of its runs, and the space of settings to vary.


@dataclass
class Sweep:
    """conf/sweep/<name>.yaml; the command line overrides its fields and the base experiment's."""

    experiment: str = MISSING  # the base: one of conf/experiment/
    # a run of the base experiment; settings that `space` does not name stay as they are there
    run: str = MISSING
    space: dict[str, Any] = field(default_factory=dict)  # the settings to vary, and their values
    # random draws, each tried at every point of the grid
    samples: int = limited(1, at_least=1)
    seed: int = limited(0, at_least=0)  # seed of the draws
    # number of best settings that become arms of `<name>_best`, besides the best baseline
    best: int = limited(2, at_least=1)
    # number of seeds that these are trained with; the sweep has used none of them
    best_seeds: int = limited(3, at_least=1)
    # arguments of Tune's ASHAScheduler, as {grace_period: 0.1, reduction_factor: 3}, where a budget
    # is 1; null: every trial is trained to its end
    asha: dict[str, Any] | None = None
    # largest number of trials at once; null: as many as there is room for
    concurrent: int | None = limited(None, at_least=1)


def known_sweeps() -> list[str]:
    return sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))


def read_sweep(name: str, overrides: list[str]) -> tuple[Sweep, list[str]]:
    """conf/sweep/<name>.yaml with the overrides that concern it, and the remaining overrides."""
    if name not in known_sweeps():
        raise UserError(f"sweep: {name!r} is not one of {', '.join(known_sweeps())} (conf/sweep/)")
    own, others = [], []
    names = {f.name for f in fields(Sweep)}
    for override in overrides:
        match = re.match(r"([+~]*)(\w+)", override)
        if match and match[2] in names:  # ++ also adds a field that the file leaves out
            sign = "~" if "~" in match[1] else "++"
            own.append(f"{sign}sweep.{override[match.end(1) :]}")
        else:
            others.append(override)
    source = f"conf/sweep/{name}.yaml"
    with refusals(source, own), initialize_config_dir(str(CONF.resolve()), version_base=None):
        node = compose(f"sweep/{name}", own).get("sweep")
    return typed(source, "", node or {}, Sweep), others


# A space of settings, in YAML by Ray Tune's own names: `lr: {loguniform: [1.0e-4, 1.0e-2]}`.
#
# Tune draws from it before the sweep, so that every trial is validated before the first one starts.

KEY_GROUPS = {"run": Run, "architecture": ModelConfig, "optim": Optim}
FUNCTIONS = {  # whose arguments YAML can write
    name: getattr(tune, name)
    for name in ["grid_search", *vars(sample)]
    if name in tune.__all__ and name != "sample_from"
}

Settings = dict[str, Any]  # by dotted key


def read_space(space: dict[str, Any], prefix: str = "") -> Settings:
    """What Tune makes of each setting, nested or dotted; raises a ValueError that names the key."""
    found: Settings = {}
    for name, entry in space.items():
        key = f"{prefix}{name}"
        if not prefix and key.partition(".")[0] not in KEY_GROUPS:
            raise ValueError(f"space.{key}: a key starts with {', '.join(KEY_GROUPS)}")
        if not isinstance(entry, dict) or not entry:
            raise ValueError(f"space.{key}: not a mapping such as {{grid_search: [1, 2]}}")
        nested = all(isinstance(value, dict) for value in entry.values())
        values = read_space(entry, f"{key}.") if nested else {key: read_function(key, entry)}
        if twice := found.keys() & values:
            raise ValueError(f"space.{min(twice)}: given twice, nested and with dots")
        found |= values
    return found


def read_function(key: str, entry: dict[str, Any]) -> Any:
    if len(entry) > 1:
        raise ValueError(f"space.{key}: one function, not {' and '.join(entry)}")
    ((name, arguments),) = entry.items()
    if name not in FUNCTIONS:
        raise ValueError(f"space.{key}.{name}: not one of {', '.join(FUNCTIONS)} of ray.tune")
    if not isinstance(arguments, list) or not arguments:
        raise ValueError(f"space.{key}.{name}: not a list of arguments")
    function = FUNCTIONS[name]
    takes_list = len(signature(function).parameters) == 1  # choice and grid_search
    try:
        values = function(arguments) if takes_list else function(*arguments)
        if isinstance(values, sample.Domain):
            values.sample(random_state=0)
    except Exception as error:  # as Tune or numpy raises it at wrong arguments
        raise ValueError(f"space.{key}.{name}: {arguments}: {error}") from None
    return values


def sweep_points(space: Settings, samples: int, seed: int) -> Iterator[Settings]:
    """Every point of the grid with every draw; draws vary slowest. More samples add to them."""
    if samples > 1 and not any(isinstance(values, sample.Domain) for values in space.values()):
        raise ValueError(f"samples: {samples}, but space has nothing that is drawn at random")
    rng = np.random.default_rng(seed)
    for _ in range(samples):
        for _, point in generate_variants(space, constant_grid_search=True, random_state=rng):
            yield point


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
