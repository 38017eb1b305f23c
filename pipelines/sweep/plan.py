"""The plan of a sweep: its file, its search space, and the trials that these make of an experiment.

conf/sweep/<name>.yaml names a base experiment, one of its runs, and the settings to vary, in Ray
Tune's own words: ``lr: {loguniform: [1.0e-4, 1.0e-2]}``. All values are drawn before the sweep, so
every trial is composed and validated before the first one starts.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from omegaconf import MISSING, DictConfig, OmegaConf
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search.sample import Domain
from ray.tune.search.variant_generator import generate_variants

from ftmodel.config import check_limits, limited
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.compose import CONF, compose_config, refusals
from pipelines.config.data import typed
from pipelines.config.derived import trainings
from pipelines.config.grid import KEY_GROUPS, LATENT_SETTINGS, Settings, name_points
from pipelines.config.load import parse
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError, near_names, not_one_of

# what a trial reports to Tune: the first two while it trains, and at last all
FRACTION, TRAINING_BOUND = "fraction", "training_bound_bits"
BOUND, ERROR = "bound", "standard_error"  # held out

SEED_KEY = "run.seed"
SEARCH_SPACE = (  # functions of ray.tune whose arguments YAML can write
    *("grid_search", "choice", "uniform", "quniform", "loguniform", "qloguniform", "randn"),
    *("qrandn", "randint", "qrandint", "lograndint", "qlograndint"),
)


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


def compose_plan(name: str, overrides: list[str]) -> tuple[SweepPlan, DictConfig]:
    """All trials of a sweep, validated, and its composed base experiment; raises UserError."""
    sweep, others = read_sweep(name, overrides)
    source = f"conf/sweep/{name}.yaml"
    config = compose_config([f"experiment={sweep.experiment}", *others])
    parse(config.copy(), f"conf/experiment/{sweep.experiment}.yaml")
    base: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    if sweep.run not in base["runs"]:
        words = not_one_of(sweep.run, base["runs"])
        raise UserError(f"{source}: run, of experiment {sweep.experiment}: {words}")
    plan = SweepPlan(name, sweep, base, {}, {}, {})
    try:
        check_limits(sweep)
        make_scheduler(sweep.asha, Path())
        points = sweep_points(sweep)
        kappa_bits = base["runs"][sweep.run]["kappa_bits"]
        try:
            plan.settings.update(name_points(points, kappa_bits))
            arms = name_points([without_seed(point) for point in points], kappa_bits)
        except ValueError as error:
            raise ValueError(f"space: {error}") from None
        if len(arms) == 1:
            arms = {sweep.run: next(iter(arms.values()))}
        for trial, settings in plan.settings.items():
            (plan.arms[trial],) = (arm for arm in arms if arms[arm] == without_seed(settings))
            plan.trials[trial] = trial_spec(plan, trial, settings)
        if len(names := {spec.run.data for spec in plan.trials.values()}) > 1:
            known = " and ".join(sorted(names))
            raise ValueError(f"space.run.data: bounds on {known} cannot be compared")
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    return plan, config


class RememberedAsha(ASHAScheduler):
    """Stops the worse trials early (asynchronous successive halving, arXiv 1810.05934).

    Trials are compared by their training bound, because there is no other while a model trains.
    The state is kept in the file ``memory``, because Tuner.restore does not bring it back.
    """

    def __init__(self, memory: Path, **settings: Any) -> None:
        settings = {"grace_period": 0.1} | settings
        super().__init__(FRACTION, TRAINING_BOUND, "min", 1, stop_last_trials=False, **settings)
        self.memory = memory
        with suppress(FileNotFoundError):
            self.restore(str(memory))

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


def without_seed(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key != SEED_KEY}


def known_sweeps() -> list[str]:
    return sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))


def read_sweep(name: str, overrides: list[str]) -> tuple[Sweep, list[str]]:
    """conf/sweep/<name>.yaml with the overrides that concern it, and the remaining overrides."""
    if name not in known_sweeps():
        raise UserError(f"conf/sweep/: {not_one_of(name, known_sweeps())}")
    own, others = [], []
    names = {f.name for f in fields(Sweep)}
    for override in overrides:
        match = re.match(r"([+~]*)(\w+)", override)
        if match and match[2] in names:  # ++ also adds a field that the file leaves out
            sign = "~" if "~" in match[1] else "++"
            own.append(f"{sign}sweep.{override[match.end(1) :]}")
        elif match and match[2] not in Experiment.__annotations__ and near_names(match[2], names):
            raise UserError(f"conf/sweep/{name}.yaml: {not_one_of(match[2], sorted(names))}")
        else:
            others.append(override)
    source = f"conf/sweep/{name}.yaml"
    with refusals(source, own), initialize_config_dir(str(CONF.resolve()), version_base=None):
        node = compose(f"sweep/{name}", own).get("sweep")
    return typed(source, "", node or {}, Sweep), others


def sweep_points(sweep: Sweep) -> list[Settings]:
    """Every point of the grid with every draw; draws vary slowest. More samples add to them."""
    if not sweep.space:
        raise ValueError("space: empty; a sweep needs at least one setting")
    space = read_space(sweep.space)
    drawn = any(isinstance(values, Domain) for values in space.values())
    if sweep.samples > 1 and not drawn:
        raise ValueError(f"samples: {sweep.samples}, but space has nothing that is drawn at random")
    rng = np.random.default_rng(sweep.seed)
    points: list[Settings] = []
    for _ in range(sweep.samples):
        variants = generate_variants(space, constant_grid_search=True, random_state=rng)
        points += [{key: point[key] for key in space} for _, point in variants]
    return points


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
    """What a function of ray.tune makes of its arguments, as in {loguniform: [1.0e-4, 1.0e-2]}."""
    if len(entry) > 1:
        raise ValueError(f"space.{key}: one function, not {' and '.join(entry)}")
    ((name, arguments),) = entry.items()
    if name not in SEARCH_SPACE:
        raise ValueError(f"space.{key}: {not_one_of(name, SEARCH_SPACE)}")
    if not isinstance(arguments, list) or not arguments:
        raise ValueError(f"space.{key}.{name}: not a list of arguments")
    function = getattr(tune, name)
    takes_a_list = name in ("grid_search", "choice")
    try:
        values = function(arguments) if takes_a_list else function(*arguments)
        if isinstance(values, Domain):
            values.sample(random_state=0)
    except Exception as error:  # as Tune or numpy raises it at wrong arguments
        raise ValueError(f"space.{key}.{name}: {arguments}: {error}") from None
    return values


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
