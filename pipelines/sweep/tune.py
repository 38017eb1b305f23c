"""Runs a sweep's trials with Ray Tune, and writes its best settings as an experiment."""

import logging
import os
import pickle
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

import yaml
from omegaconf import OmegaConf
from ray import tune

from ftmodel.config import ModelConfig
from pipelines.artifacts.checkpoint import hash_of
from pipelines.cluster.connection import connect, runs_at_once, worker_of
from pipelines.cluster.preflight import check_ray
from pipelines.config.compose import CONF, compose_valid, write_params
from pipelines.config.schema import Arm, Compute, Experiment, Optim
from pipelines.host.console import say
from pipelines.host.dvc import dvc_command, dvc_environment
from pipelines.host.errors import UserError
from pipelines.host.files import alone, write_file
from pipelines.host.source_code import code_version
from pipelines.sweep.plan import (
    DONE,
    SweepPlan,
    TrialOutcome,
    by_bound,
    compose_plan,
    known_sweeps,
    make_scheduler,
    trial_name,
    trial_table,
)
from pipelines.sweep.trial import close_parent, end_trial, open_parent, run_trial
from pipelines.train.core.segments import make_manifest

# The best settings of a sweep, as an ordinary experiment: conf/experiment/<sweep>_best.yaml.
#
# They were chosen for their bounds, so the sweep's own figures for them are too good. The
# experiment trains them with seeds that no trial has had. Stages evaluate and report it like any
# other.

WRITTEN_BY = "# Written by `ftlab sweep sweep={name}`"
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


os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow has it all
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the command
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")  # between two records of where trials are
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

NEXT = """
The best of {trials} trials looks better than it is: it was chosen for its bound on these very
documents, luck included. {path} has {arms},
with seeds that no trial has had:

    make repro EXPERIMENT={name}"""

logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # TrialProgress says what is needed


def make_tokens(plan: SweepPlan) -> None:
    """Let DVC bring the data of all trials up to date."""
    stage = f"tokenize@{plan.first.run.data}"
    command = dvc_command("--wait-for-lock", "repro", stage)
    if subprocess.run(command, env=dvc_environment()).returncode:
        raise UserError(f"dvc repro {stage} failed; its output is above")


def state_folder(plan: SweepPlan) -> Path:
    """The folder of Tune's state. Trials with other settings, data or code have another folder."""
    trials = [make_manifest(spec, spec.shards()).spec_hash for spec in plan.trials.values()]
    evaluation = asdict(plan.first.experiment.evaluation)
    decisive = (trials, evaluation, code_version("evaluate"), plan.sweep.asha)
    return Path("sweeps") / plan.name / hash_of(decisive)[:16]


class TrialProgress(tune.Callback):
    """Prints a line whenever one of ``trials`` trials ends."""

    def __init__(self, trials: int) -> None:
        self.trials = trials

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self.say(trials, trial, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        file = trial.pickled_error_file  # where it lies before Tune brings it to the folder
        error = pickle.loads(Path(file).read_bytes()) if file else "no reason given"
        self.say(trials, trial, error)

    def say(self, trials: list[Any], trial: Any, error: object) -> None:
        ended = sum(each.is_finished() or each is trial for each in trials)
        outcome = TrialOutcome.of(trial.config["trial"], trial.last_result, error)
        say(f"{ended}/{self.trials} {outcome.name}: {outcome}")


def concurrent_trials(compute: Compute) -> int | None:
    """How many trials to run at once; None leaves it to Tune, which knows what else is running.
    Raises UserError if not even one fits, since Tune would wait for it.
    """
    fitting = runs_at_once(compute)
    return None if os.environ.get("RAY_ADDRESS") and compute.workers == 1 else fitting


def resources(compute: Compute) -> tune.PlacementGroupFactory:
    """Resources of a trial's own process."""
    if compute.workers > 1:  # it only waits for its workers, which have resources of their own
        return tune.PlacementGroupFactory([{"memory": 1e6}])  # Tune does not accept nothing
    return tune.PlacementGroupFactory([worker_of(compute).resources()])


def known_results(folder: Path) -> tune.ResultGrid | None:
    """Results that an earlier command has left, if they are readable."""
    try:
        return tune.ResultGrid(tune.ExperimentAnalysis(folder.resolve()))
    except (OSError, ValueError):  # nothing yet, or cut short while it was written
        return None


def run_trials(plan: SweepPlan, folder: Path, parent: str) -> tune.ResultGrid:
    """Run all trials that have not ended under an earlier command."""
    before = known_results(folder)
    ended = before.num_terminated if before else 0
    print(f"sweep {plan.name}: {len(plan.trials)} trials, {ended} ended before", flush=True)
    if before and ended == len(plan.trials):
        return before
    connect()
    root, compute = Path.cwd(), plan.first.experiment.compute
    at_once, command = concurrent_trials(compute), uuid4().hex[:8]

    def train(config: dict[str, Any]) -> None:
        os.chdir(root)  # from the trial's folder, where Tune has put this process
        name = config["trial"]
        run_trial(plan.trials[name], parent, folder / name / "log.txt", command)

    folder.mkdir(parents=True, exist_ok=True)
    trainable = tune.with_resources(train, resources(compute))
    tuner = tune.Tuner(  # written down in the folder, where Tuner.restore reads it
        trainable,
        param_space={"trial": tune.grid_search([*plan.trials])},
        tune_config=tune.TuneConfig(
            scheduler=make_scheduler(plan.sweep.asha, folder),
            max_concurrent_trials=plan.sweep.concurrent or at_once,
            trial_name_creator=lambda trial: trial.config["trial"],
            trial_dirname_creator=lambda trial: trial.config["trial"],
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent.resolve()),
            verbose=0,
            callbacks=[TrialProgress(len(plan.trials))],
            failure_config=tune.FailureConfig(max_failures=compute.max_failures),
        ),
    )
    if before:
        tuner = tune.Tuner.restore(str(folder.resolve()), trainable, restart_errored=True)
    return tuner.fit()


def sweep_once(plan: SweepPlan, folder: Path) -> None:
    """Run the sweep to its end and record it in MLflow; raises UserError if no trial is done."""
    parent = open_parent(plan)
    try:
        results: Any = run_trials(plan, folder, parent.journal.run.key)
        outcomes = [TrialOutcome.of(r.config["trial"], r.metrics, r.error) for r in results]
        for each in outcomes:
            if each.state != DONE:
                end_trial(plan.trials[each.name], parent.journal.run.key, bool(each.error))
        print("\n".join(trial_table(outcomes)))
        if not any(each.bound for each in outcomes):
            raise UserError(f"no trial is done: {max(each.error for each in outcomes)}")
        arms = best_arms(plan, outcomes)
        experiment = write_best(plan, arms)
        close_parent(parent, plan, by_bound(outcomes)[0], experiment)
    except BaseException as error:
        parent.finish("FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    names = ", ".join(arms)
    print(NEXT.format(trials=len(outcomes), path=experiment, arms=names, name=experiment.stem))


def main(overrides: Sequence[str]) -> None:
    chosen = [a for a in overrides if a.startswith("sweep=")]
    if len(chosen) != 1:
        raise UserError(
            "usage: ftlab sweep sweep=<name> [key=value …]; there are "
            f"{', '.join(known_sweeps())} (conf/sweep/)"
        )
    others = [a for a in overrides if a not in chosen]
    check_ray()
    plan, config = compose_plan(chosen[0].removeprefix("sweep="), others)
    check_replaceable(best_path(plan.name), plan.name)
    write_params(config)
    make_tokens(plan)
    with alone(Path("sweeps") / plan.name):
        sweep_once(plan, state_folder(plan))
