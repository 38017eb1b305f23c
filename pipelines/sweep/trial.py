"""One trial of a sweep: trained and evaluated like any run."""

import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from pipelines.artifacts.checkpoint import Manifest, read_checkpoint
from pipelines.artifacts.curve import row_of
from pipelines.artifacts.run_results import read_run
from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.connection import on_a_worker
from pipelines.evaluate.stage import measure
from pipelines.host.errors import UserError
from pipelines.host.files import alone, published_journal
from pipelines.host.machine import git_revision
from pipelines.sweep.plan import (
    BOUND,
    ERROR,
    FRACTION,
    TRAINING_BOUND,
    SweepPlan,
    TrialOutcome,
    in_one_line,
)
from pipelines.tracking.journal import WHAT_IS_COMPARED, Journal, open_journal, source_tags
from pipelines.tracking.live import Tracking
from pipelines.tracking.store import AWAY
from pipelines.tracking.sync import sync_all
from pipelines.train.core.segments import make_manifest, publish
from pipelines.train.core.trainer import fit
from pipelines.train.distributed import fit_on_ray

# MLflow runs: the sweep's own, and the trials', nested in it.


def open_parent(plan: SweepPlan) -> Tracking:
    """Open the sweep's run, the same one however often the command is given."""
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


def close_parent(tracking: Tracking, plan: SweepPlan, best: TrialOutcome, experiment: Path) -> None:
    """Log the best trial and the experiment that it has led to, and end the run."""
    settings = {f"best.{key}": str(value) for key, value in plan.settings[best.name].items()}
    tags = {"best.trial": best.name, "best.bound": str(best.bound), "experiment": str(experiment)}
    tracking.journal.append(tags=tags | settings)
    tracking.finish()
    with suppress(*AWAY):  # logged already
        sync_all(tracking.sync.store, plan.experiment)  # trials that could not be nested yet


def is_trained(spec: RunSpec, manifest: Manifest) -> bool:
    with suppress(UserError):  # there is none, or it is damaged: it is trained
        return read_checkpoint(spec.checkpoint())[1].spec_hash == manifest.spec_hash
    return False


def journal_of(spec: RunSpec, manifest: Manifest, trained: bool, go_on: bool) -> Journal:
    """The journal of a trial that has been trained, or will be; see open_journal."""
    if trained:
        return Journal(published_journal(manifest.experiment, spec.name))
    command = f"ftlab sweep sweep={manifest.experiment.removeprefix('sweep_')}"
    return open_journal(manifest, spec.experiment, go_on, command)


def nest(spec: RunSpec, manifest: Manifest, trained: bool, parent: str) -> None:
    """Nest the MLflow run that training will begin or continue in ``parent``'s."""
    journal = journal_of(spec, manifest, trained, go_on=any(manifest.resume.glob("*.ckpt")))
    if journal.run.parent != parent:
        journal.append(parent=parent)


def end_trial(spec: RunSpec, parent: str, failed: bool) -> None:
    """End the MLflow run of a trial that failed or, unless ``failed``, that ASHA stopped. A trial
    ends its run itself, unless its process was lost, perhaps even before it nested the run.
    """
    manifest = make_manifest(spec, spec.shards())
    journal = journal_of(spec, manifest, is_trained(spec, manifest), go_on=True)
    if journal.run.status == "RUNNING":
        journal.append(parent=parent)
        Tracking(journal).finish("FAILED" if failed else "KILLED")


def reported(figures: dict[str, float], steps: int) -> dict[str, float]:
    """What Tune is told about a row of the training curve."""
    row = row_of(figures)
    return {FRACTION: row.step / steps, TRAINING_BOUND: row.bound_bits}


class Rows(TuneReportCallback):
    """Reports rows of training on workers of Ray Train, which calls this in its own process."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        if metrics[0]["step"] < self.steps:
            super().after_report(run_context, [reported(metrics[0], self.steps)], None)


def run_trial(spec: RunSpec, parent: str, log: Path, command: str) -> None:
    """Train and evaluate a trial, from its last checkpoint on, and report to Tune, which may end
    the process.

    ``parent`` is the key of the sweep's MLflow run. What a run prints is added to ``log``, and
    so is the traceback of an exception, which is raised again. Tune starts such a trial again,
    as it does one that lost its node. Within the same ``command`` it would only fail again, so
    it is not trained.
    """
    failure = log.with_name(f"failure-{command}.txt")
    if failure.exists():
        raise UserError(failure.read_text(encoding="utf-8"))
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(log, "a", encoding="utf-8", buffering=1) as file,
        redirect_stdout(file),
        redirect_stderr(file),
    ):
        try:
            with alone(spec.resume):
                train_and_measure(spec, parent)
            run = read_run(spec)
        except Exception as error:
            traceback.print_exc()
            failure.write_text(in_one_line(error), encoding="utf-8")
            raise
        bound = run.bound("bits_per_token")
        trained = {FRACTION: 1.0, TRAINING_BOUND: run.curve[-1].bound_bits}
        tune.report(trained | {BOUND: bound.mean, ERROR: bound.se})


def train_and_measure(spec: RunSpec, parent: str) -> None:
    manifest, steps = make_manifest(spec, spec.shards()), spec.steps

    def watch(figures: dict[str, float]) -> None:
        if figures["step"] < steps:  # a trial that is fully trained must not be stopped any more
            tune.report(reported(figures, steps))

    trained, several = is_trained(spec, manifest), spec.experiment.compute.workers > 1
    nest(spec, manifest, trained, parent)
    if not trained:
        if several:
            fit_on_ray(spec, manifest, [Rows(steps)])
        else:
            fit(spec, manifest, watch=watch)
        publish(spec, manifest)
    if several:
        on_a_worker(spec.experiment, partial(measure, spec))
    else:
        measure(spec)
