"""Runs a sweep's trials with Ray Tune, and writes its best settings as an experiment.

A trial is trained and evaluated like any run. Ray Tune places trials, stops and restarts them, and
shows their state. MLflow shows their runs nested in the sweep's own.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from omegaconf import OmegaConf
from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from ftmodel.config import ModelConfig
from pipelines.artifacts.checkpoint import Manifest, hash_of, read_checkpoint
from pipelines.artifacts.curve import row_of
from pipelines.artifacts.results import Estimate
from pipelines.artifacts.run_results import read_run
from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.connection import connect, on_a_worker, runs_at_once, worker_of
from pipelines.cluster.preflight import check_ray
from pipelines.config.compose import CONF, compose_valid, write_params
from pipelines.config.grid import name_of
from pipelines.config.schema import Arm, Compute, Experiment, Optim
from pipelines.evaluate.stage import measure
from pipelines.host.console import aligned, say
from pipelines.host.dvc import dvc_command, dvc_environment, pipeline_alone, repair
from pipelines.host.errors import UserError
from pipelines.host.files import alone, published_journal, write_file
from pipelines.host.machine import git_revision
from pipelines.host.source_code import code_version
from pipelines.sweep.plan import (
    BOUND,
    ERROR,
    FRACTION,
    TRAINING_BOUND,
    SweepPlan,
    compose_plan,
    known_sweeps,
    make_scheduler,
)
from pipelines.tracking.journal import (
    WHAT_IS_COMPARED,
    Journal,
    journals,
    open_journal,
    source_tags,
)
from pipelines.tracking.live import Tracking
from pipelines.tracking.sync import behind, sync_all
from pipelines.train.core.segments import make_manifest, publish
from pipelines.train.core.trainer import fit
from pipelines.train.distributed import fit_on_ray

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the other output has no reporter for logs
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow has it all
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the command
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")  # between two records of where trials are
logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # errors are in each trial's error.txt

REPORT_SECONDS = 60  # between two tables of the trials
WRITTEN_BY = "# Written by `ftlab sweep sweep={name}`"
EXPERIMENT_HEADER = """\
# @package _global_
{written}: the best settings of {trials} trials,
# with seeds that no trial has had. The settings were chosen by their bounds on the held-out
# documents that this experiment is evaluated on, and the best of many looks better than it is:
# quote the figures of this experiment, not those of the sweep.
"""
NEXT = """
The best of {trials} trials looks better than it is: it was chosen for its bound on these very
documents, luck included. {path} has {arms},
with seeds that no trial has had:

    make repro EXPERIMENT={name}"""


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
    with pipeline_alone(what="ftlab sweep"):
        repair()
        write_params(config)
        tokens = f"tokenize@{plan.first.run.data}"
        command = dvc_command("--wait-for-lock", "repro", tokens)
        if subprocess.run(command, env=dvc_environment()).returncode:
            raise UserError(f"dvc repro {tokens} failed; its output is above")
    with alone(Path("sweeps") / plan.name):
        sweep_once(plan, state_folder(plan))


def state_folder(plan: SweepPlan) -> Path:
    """The folder of Tune's state. Trials with other settings, data or code have another folder."""
    trials = [make_manifest(spec, spec.shards()).spec_hash for spec in plan.trials.values()]
    evaluation = asdict(plan.first.experiment.evaluation)
    decisive = (trials, evaluation, code_version("evaluate"), plan.sweep.asha)
    return Path("sweeps") / plan.name / hash_of(decisive)[:16]


def sweep_once(plan: SweepPlan, folder: Path) -> None:
    """Run the sweep to its end and record it in MLflow; raises UserError if no trial is done."""
    parent = open_parent(plan)
    try:
        results: Any = run_trials(plan, folder, parent.journal.run.key)
        bounds: dict[str, Estimate] = {}
        words: dict[str, str] = {}
        failed = [result.config["trial"] for result in results if result.error]
        end_lost_trials(plan, parent.journal.run.key, failed)
        for result in results:
            trial, last = result.config["trial"], result.metrics or {}
            if BOUND in last:
                bounds[trial] = Estimate(last[BOUND], last[ERROR])
                words[trial] = str(bounds[trial])
            else:
                ended = f"failed: {reason(result.error)}" if result.error else "stopped early"
                words[trial] = f"at {last.get(FRACTION, 0):.0%} of its budget {ended}"
        ranked = sorted(bounds, key=lambda trial: bounds[trial].mean)
        rows = [[trial, words[trial]] for trial in dict.fromkeys([*ranked, *words])]
        print("", *aligned([["trial", "bound, bits per token"], *rows]), sep="\n")
        if not bounds:
            raise UserError(
                f"no trial is done: {words[failed[0]] if failed else 'all were stopped'}"
            )
        arms = best_arms(plan, {trial: bound.mean for trial, bound in bounds.items()})
        experiment = write_best(plan, arms)
        settings = {f"best.{key}": str(value) for key, value in plan.settings[ranked[0]].items()}
        tags = {"best.trial": ranked[0], "best.bound": str(bounds[ranked[0]])}
        tags["experiment"] = str(experiment)
        parent.journal.append(tags=tags | settings)
        parent.finish()
    except BaseException as error:
        parent.finish("FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    try:  # runs of trials that MLflow had before the sweep's own, and each arm's mean over seeds
        sync_all(parent.sync.store, plan.experiment)
    except Exception as error:
        say(behind(parent.sync.store, error))
    names = ", ".join(arms)
    print(NEXT.format(trials=len(words), path=experiment, arms=names, name=experiment.stem))


def reason(error: Any) -> str:
    """What ended a trial, in one line: an exception of its own, or the loss of its process."""
    cause = getattr(error, "cause", error)
    words = " ".join(str(cause).split())
    return words if isinstance(cause, UserError) else f"{type(cause).__name__}: {words}"


def open_parent(plan: SweepPlan) -> Tracking:
    """Open the sweep's MLflow run, the same one however often the command is given."""
    path = Path("sweeps") / plan.name / "tracking.jsonl"
    if path.exists():
        journal = Journal(path)
    else:
        journal = Journal(path, experiment=plan.experiment, run_name="sweep")
    command = f"ftlab sweep {' '.join(sys.argv[1:])}"
    note = f"Sweep `{plan.name}`, made by `{command}`.\n\n{WHAT_IS_COMPARED}"
    tags = {"sweep": plan.name, "mlflow.source.git.commit": git_revision()}
    journal.append(tags=tags | source_tags(note, command), status="RUNNING")
    return Tracking(journal, note)


def end_lost_trials(plan: SweepPlan, parent: str, failed: Sequence[str]) -> None:
    """End the MLflow runs of trials that could not do it, since their processes were lost."""
    for path in journals(plan.experiment):
        journal = Journal(path)
        if journal.run.status == "RUNNING":
            journal.append(parent=parent)
            Tracking(journal).finish("FAILED" if journal.run.run_name in failed else "KILLED")


def run_trials(plan: SweepPlan, folder: Path, parent: str) -> tune.ResultGrid:
    """Run all trials that have not ended under an earlier command."""
    connect()
    root, compute = Path.cwd(), plan.first.experiment.compute
    at_once = concurrent_trials(compute)

    def train(config: dict[str, Any]) -> None:
        os.chdir(root)  # from the trial's folder, where Tune has put this process
        name = config["trial"]
        run_trial(plan.trials[name], parent, folder / name / "log.txt", plan.arms[name])

    trainable = tune.with_resources(train, resources(compute))
    space = {"trial": tune.grid_search([*plan.trials])}
    path = str(folder.resolve())
    begun = tune.Tuner.can_restore(path)
    folder.mkdir(parents=True, exist_ok=True)
    # written to the folder, where Tuner.restore reads it, so the settings of this command count
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            scheduler=make_scheduler(plan.sweep.asha, folder),
            max_concurrent_trials=plan.sweep.concurrent or at_once,
            trial_name_creator=lambda trial: trial.config["trial"],
            trial_dirname_creator=lambda trial: trial.config["trial"],
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent.resolve()),
            verbose=1,
            progress_reporter=tune.CLIReporter(
                metric_columns=[FRACTION, TRAINING_BOUND, BOUND, ERROR],
                max_report_frequency=REPORT_SECONDS,
                print_intermediate_tables=True,
            ),
            failure_config=tune.FailureConfig(max_failures=compute.max_failures),
        ),
    )
    if begun:
        tuner = tune.Tuner.restore(path, trainable, restart_errored=True, param_space=space)
    return tuner.fit()


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


def run_trial(spec: RunSpec, parent: str, log: Path, arm: str = "") -> None:
    """Train and evaluate a trial of an ``arm``, from its last checkpoint on, and report to Tune,
    which may end the process. ``parent`` is the key of the sweep's MLflow run. Output is added to
    ``log``.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(log, "a", encoding="utf-8", buffering=1) as file,
        redirect_stdout(file),
        redirect_stderr(file),
        alone(spec.resume),
    ):
        train_and_measure(spec, parent, arm)
    run = read_run(spec)
    bound = run.bound("bits_per_token")
    trained = {FRACTION: 1.0, TRAINING_BOUND: run.curve[-1].bound_bits}
    tune.report(trained | {BOUND: bound.mean, ERROR: bound.se})


def train_and_measure(spec: RunSpec, parent: str, arm: str) -> None:
    manifest, steps = make_manifest(spec, spec.shards()), spec.steps
    try:
        trained = read_checkpoint(spec.checkpoint())[1].spec_hash == manifest.spec_hash
    except UserError:  # there is none, or it is damaged
        trained = False
    nest(spec, manifest, trained, parent, arm)
    several_workers = spec.experiment.compute.workers > 1

    def watch(figures: dict[str, float]) -> None:
        if figures["step"] < steps:  # a trial that is fully trained must not be stopped any more
            tune.report(reported(figures, steps))

    if not trained:
        if several_workers:
            fit_on_ray(spec, manifest, [WorkersRows(steps)])
        else:
            fit(spec, manifest, watch=watch)
        publish(spec, manifest)
    if several_workers:
        on_a_worker(spec.experiment, partial(measure, spec))
    else:
        measure(spec)


def nest(spec: RunSpec, manifest: Manifest, trained: bool, parent: str, arm: str = "") -> None:
    """Nest the MLflow run of a trial, which training will begin or continue, in ``parent``'s."""
    if trained:
        journal = Journal(published_journal(manifest.experiment, spec.name))
    else:
        command = f"ftlab sweep sweep={manifest.experiment.removeprefix('sweep_')}"
        go_on = any(manifest.resume.glob("*.ckpt"))
        journal = open_journal(manifest, spec.experiment, go_on, command, arm)
    if journal.run.parent != parent:
        journal.append(parent=parent)


def reported(figures: dict[str, float], steps: int) -> dict[str, float]:
    """What Tune is told about a row of the training curve."""
    row = row_of(figures)
    return {FRACTION: row.step / steps, TRAINING_BOUND: row.bound_bits}


class WorkersRows(TuneReportCallback):
    """Reports rows of training on workers of Ray Train, which calls this in its own process."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        if metrics[0]["step"] < self.steps:
            super().after_report(run_context, [reported(metrics[0], self.steps)], None)


def best_arms(plan: SweepPlan, bounds: Mapping[str, float]) -> dict[str, str]:
    """A trial of each of the best settings by their arm's name, best first by the mean over the
    seeds in ``bounds``, the held-out bounds of trials. The best baseline is always among them.
    """
    trials: dict[str, list[str]] = {}
    for trial in bounds:
        trials.setdefault(plan.arms[trial], []).append(trial)
    ranked = sorted(trials, key=lambda arm: fmean(bounds[trial] for trial in trials[arm]))
    baselines = [arm for arm in ranked if plan.trials[trials[arm][0]].run.kappa_bits is None]
    chosen = ranked[: plan.sweep.best]
    if not {*chosen} & {*baselines}:
        chosen += baselines[:1]
    return {arm: trials[arm][0] for arm in chosen}


def best_path(sweep: str) -> Path:
    return CONF / "experiment" / f"{sweep}_best.yaml"


def check_replaceable(path: Path, sweep: str) -> None:
    """Raise UserError for an experiment that was not written by this sweep."""
    if path.exists() and WRITTEN_BY.format(name=sweep) not in path.read_text(encoding="utf-8"):
        raise UserError(f"{path}: not written by the sweep, which would replace it; rename it")


def write_best(plan: SweepPlan, arms: Mapping[str, str]) -> Path:
    """Write an ordinary experiment: the settings of ``arms``' trials, with seeds that no trial has
    had. The settings were chosen for their bounds, so the sweep's figures for them are too good.
    """
    base = plan.base
    runs: dict[str, Any] = {}
    presets: dict[str, Any] = {}
    for arm, trial in arms.items():
        spec, settings = plan.trials[trial], plan.settings[trial]
        run = in_yaml(spec.run)
        if own := {key: value for key, value in settings.items() if not key.startswith("run.")}:
            run["model"] += f"_{name_of(own)}"  # a size with a recipe of its own
        presets[run["model"]] = in_yaml(spec.experiment.models[spec.run.model])
        del run["seed"]
        runs[arm] = run
    data = {run["data"]: base["data"][run["data"]] for run in runs.values()}
    types = [{f"/source@data.{key}": each["source"]} for key, each in data.items()]
    types += [
        {f"/part@data.{key}.parts.{part}": each["source"]}
        for key, entry in data.items()
        for part, each in entry.get("parts", {}).items()
    ]
    groups = ["compute", "evaluation"]
    if any(entry["source"] == "text" for entry in data.values()):
        groups.append("suite")
    first_seed = 1 + max(spec.run.seed for spec in plan.trials.values())
    whole, arm_defaults = in_yaml(Experiment), in_yaml(Arm)
    model_defaults = {"architecture": in_yaml(ModelConfig), "optim": in_yaml(Optim)}
    experiment = {
        "defaults": [*types, "_self_"],
        "name": f"{plan.name}_best",
        "question": f"Do the best settings of sweep {plan.name} hold with new seeds?",
        "data": data,
        "models": {key: without_defaults(each, model_defaults) for key, each in presets.items()},
        "seeds": [*range(first_seed, first_seed + plan.sweep.best_seeds)],
        "arms": {name: without_defaults(run, arm_defaults) for name, run in runs.items()},
        "runs": "${each_seed:${arms},${seeds}}",
    }
    for key in groups:
        if own := without_defaults(base[key], whole[key]):
            experiment[key] = own
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


def in_yaml(settings: Any) -> Any:
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
