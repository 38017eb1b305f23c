"""A sweep: one run of an experiment with its settings varied, on Ray Tune.

    python -m pipelines.sweep sweep=kappa samples=4 'space.optim.lr.loguniform=[1.0e-3,1.0e-2]'

The same command continues an interrupted sweep: finished trials are not run again, an unfinished
one goes on from its last checkpoint. Writes sweeps/<sweep>/report/ and an MLflow run ``sweep``, the
parent of the trials' runs.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow has it all
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the command
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

from omegaconf import OmegaConf
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from pipelines.cluster.connection import (
    connect,
    runs_at_once,
    worker_of,
)
from pipelines.common.arguments import overrides
from pipelines.common.atomic_files import alone
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.common.shell_paths import check_ray
from pipelines.compose import write_params
from pipelines.config.schema import Compute, Experiment
from pipelines.sweep.parent_run import close_parent, open_parent
from pipelines.sweep.plan import Plan, compose_plan
from pipelines.sweep.ranking import SweepAnalysis
from pipelines.sweep.report import write
from pipelines.sweep.result import DONE, FAILED, STOPPED, Folder, Result
from pipelines.sweep.schema import known_sweeps
from pipelines.sweep.trial import BOUND, FRACTION, run_trial, settle, trial_hash

# it warns of missing files of the loggers that are off
logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)


def make_tokens(plan: Plan) -> None:
    """Let DVC bring the data of all trials up to date."""
    stages = [f"tokenize@{name}" for name in plan.data]
    dvc = subprocess.run([sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *stages])
    if dvc.returncode:
        raise UserError(f"dvc repro {' '.join(stages)} failed; what it says is above")


def stopper(plan: Plan) -> str:
    asha = plan.sweep.asha
    return f"ASHA grace {asha.grace:g} reduction {asha.reduction}" if asha else ""


def known_results(plan: Plan) -> dict[str, Result]:
    """Results of earlier commands that are still valid.

    A failed trial is tried again; a stopped one is continued if ASHA's settings have changed.
    """
    known = {}
    for name, experiment in plan.trials.items():
        result = Folder(plan.name, name).read(trial_hash(experiment, name))
        if result and (result.status == DONE or
                       (result.status == STOPPED and result.stopper == stopper(plan))):  # fmt: skip
            known[name] = result
    return known


def make_scheduler(plan: Plan, ended: dict[str, Result]) -> TrialScheduler:
    """Tune's scheduler, fed with the curves of trials that ``ended`` under an earlier command.

    (Tuner.restore would bring back the trials, but not the scheduler's state.)
    """
    asha = plan.sweep.asha
    if asha is None:
        return FIFOScheduler()
    scheduler = AsyncHyperBandScheduler(
        time_attr=FRACTION,
        metric=BOUND,
        mode="min",
        max_t=1.0,  # type: ignore[arg-type]  # its arithmetic is that of any numbers
        grace_period=asha.grace,  # type: ignore[arg-type]
        reduction_factor=asha.reduction,
        stop_last_trials=False,
    )
    for name, result in ended.items():
        steps = plan.trials[name].steps(plan.trials[name].runs[name])
        trial: Any = SimpleNamespace(trial_id=name)
        nobody: Any = None
        scheduler.on_trial_add(nobody, trial)
        for row in result.curve:
            if row.step < steps:
                reported = {FRACTION: row.step / steps, BOUND: row.bound_bits}
                scheduler.on_trial_result(nobody, trial, reported)
    return scheduler


def trainable(plan: Plan, root: Path, parent: str) -> Callable[[dict[str, Any]], None]:
    """What Tune runs for each trial."""

    def train(config: dict[str, Any]) -> None:
        os.chdir(root)  # from the trial's folder, where Tune has put this process
        name = config["trial"]
        run_trial(
            plan.trials[name],
            name,
            plan.name,
            parent,
            lambda fraction, bound: tune.report({FRACTION: fraction, BOUND: bound}),
        )

    return train


class Progress(tune.Callback):
    """Prints a line for each trial that ends; ``lost`` has the error of each process that died."""

    def __init__(self, plan: Plan, done: int) -> None:
        self.plan, self.done = plan, done
        self.lost: dict[str, str] = {}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        name = trial.config["trial"]
        experiment = self.plan.trials[name]
        result = Folder(self.plan.name, name).read(trial_hash(experiment, name))
        share = trial.last_result.get(FRACTION, 0.0)
        self.say(name, outcome(result, experiment) if result else stopped_at(share))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        name = trial.config["trial"]
        lines = str(trial.get_error()).strip().splitlines()
        self.lost[name] = f"its process was lost ({lines[-1] if lines else 'no reason given'})"
        self.say(name, f"failed: {self.lost[name]}")

    def say(self, name: str, outcome: str) -> None:
        self.done += 1
        say(f"{self.done}/{len(self.plan.trials)} {name}: {outcome}")


def stopped_at(share: float) -> str:
    return f"stopped early, at {share:.0%} of its budget"


def outcome(result: Result, experiment: Experiment) -> str:
    """In a few words, of a trial that finished or failed."""
    if result.status == FAILED:
        return f"failed: {result.error}"
    return f"bound {result.run_results(experiment).bound('bits_per_token')} bits per token"


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


def run_trials(plan: Plan, ended: dict[str, Result], parent: str) -> dict[str, str]:
    """Run all trials that have not ``ended``; returns the errors of those whose process was lost.

    The others leave their results on disk, unless they were stopped early.
    """
    names = [name for name in plan.trials if name not in ended]
    for name in names:
        Folder(plan.name, name).set_aside()
    connect()
    compute = next(iter(plan.trials.values())).compute
    at_once = concurrent_trials(compute)
    progress = Progress(plan, len(ended))
    tuner = tune.Tuner(
        tune.with_resources(trainable(plan, Path.cwd(), parent), resources(compute)),
        param_space={"trial": tune.grid_search(names)},
        tune_config=tune.TuneConfig(
            scheduler=make_scheduler(plan, ended),
            max_concurrent_trials=plan.sweep.concurrent or at_once,
            trial_name_creator=lambda trial: trial.config["trial"],
            trial_dirname_creator=lambda trial: trial.config["trial"],
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(Path("sweeps").resolve() / plan.name),
            verbose=0,
            callbacks=[progress],
            failure_config=tune.FailureConfig(max_failures=compute.max_failures),
        ),
    )
    tuner.fit()
    return progress.lost


def sweep_once(plan: Plan) -> None:
    folder = Path("sweeps") / plan.name
    ended = known_results(plan)
    note_specification(plan, folder, len(ended))
    parent = open_parent(plan)
    try:
        lost, key = {}, parent.journal.run.key
        if len(ended) < len(plan.trials):
            lost = run_trials(plan, ended, key)
        results = {
            name: settle(experiment, name, plan.name, key, stopper(plan), lost.get(name, ""))
            for name, experiment in plan.trials.items()
        }
        sweep = SweepAnalysis(plan, results)
        report = write(sweep)
        close_parent(parent, sweep, report)
    except BaseException as error:
        parent.finish("FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    print((report / "summary.txt").read_text(encoding="utf-8"), end="")
    failed = [name for name, result in results.items() if result.status == FAILED]
    if len(failed) == len(results):
        raise UserError(f"all {len(failed)} trials failed: {results[failed[0]].error}")


def note_specification(plan: Plan, folder: Path, ended: int) -> None:
    """Print how much is left to do, and whether the settings have changed since last time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sweep.yaml"
    text = OmegaConf.to_yaml({"sweep": asdict(plan.sweep), "trials": plan.settings})
    if path.exists() and path.read_text(encoding="utf-8") != text:
        print(f"sweep {plan.name}: its settings changed; results that are still valid are kept")
    path.write_text(text, encoding="utf-8")
    trials = len(plan.trials)
    print(f"sweep {plan.name}: {trials} trials, {ended} of them done before", flush=True)


@overrides("sweep")
def main(overrides: Sequence[str]) -> None:
    chosen = [a for a in overrides if a.startswith("sweep=")]
    if len(chosen) != 1:
        raise UserError(
            "usage: python -m pipelines.sweep sweep=<name> [key=value …]; there are "
            f"{', '.join(known_sweeps())} (conf/sweep/)"
        )
    others = [a for a in overrides if a not in chosen]
    plan, config = compose_plan(chosen[0].removeprefix("sweep="), others)
    check_ray()
    write_params(config)
    make_tokens(plan)
    with alone(Path("sweeps") / plan.name):
        sweep_once(plan)
