"""Vary the settings of one run, on Ray Tune.

    python -m pipelines.sweep sweep=kappa samples=4 'space.optim.lr.loguniform=[1.0e-3,1.0e-2]'

The same command continues an interrupted sweep. Finished trials are not repeated, unfinished trials
continue from their last checkpoint, and failed trials are tried again. Prints all trials, and
writes conf/experiment/<sweep>_best.yaml: the best settings, as an experiment with other seeds. In
MLflow the trials are nested in a run ``sweep``.
"""

import logging
import os
import pickle
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow has it all
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the command
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")  # between two records of where trials are
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

from ray import tune

from pipelines.artifacts.manifest import hash_of
from pipelines.cluster.connection import connect, runs_at_once, worker_of
from pipelines.common.arguments import overrides
from pipelines.common.atomic_files import alone
from pipelines.common.console import say
from pipelines.common.dvc_command import dvc_command, dvc_environment
from pipelines.common.errors import UserError
from pipelines.common.shell_paths import check_ray
from pipelines.common.source_code import code_version
from pipelines.compose import write_params
from pipelines.config.schema import Compute
from pipelines.sweep.asha import make_scheduler
from pipelines.sweep.best import best_arms, best_path, check_replaceable, write_best
from pipelines.sweep.mlflow_runs import close_parent, end_trial, open_parent
from pipelines.sweep.outcome import DONE, TrialOutcome, by_bound, trial_table
from pipelines.sweep.plan import SweepPlan, compose_plan
from pipelines.sweep.schema import known_sweeps
from pipelines.sweep.trial import run_trial
from pipelines.train.core.manifest import make_manifest

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


@overrides("sweep")
def main(overrides: Sequence[str]) -> None:
    chosen = [a for a in overrides if a.startswith("sweep=")]
    if len(chosen) != 1:
        raise UserError(
            "usage: python -m pipelines.sweep sweep=<name> [key=value …]; there are "
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
