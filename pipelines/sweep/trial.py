"""One trial of a sweep: trained and evaluated like any run."""

import traceback
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback

from pipelines.artifacts.curve import row_of
from pipelines.artifacts.run_results import read_run
from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.connection import on_a_worker
from pipelines.common.atomic_files import alone
from pipelines.common.errors import UserError
from pipelines.evaluate.stage import measure
from pipelines.sweep.mlflow_runs import is_trained, nest
from pipelines.sweep.outcome import BOUND, ERROR, FRACTION, TRAINING_BOUND, in_one_line
from pipelines.train.core.manifest import make_manifest
from pipelines.train.core.publish import publish
from pipelines.train.core.trainer import fit
from pipelines.train.distributed import fit_on_ray


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
