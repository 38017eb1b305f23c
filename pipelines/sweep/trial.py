"""One trial of a sweep: trained and evaluated like any run."""

import json
import traceback
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from ray.tune.integration.ray_train import TuneReportCallback

from pipelines.artifacts.checkpoint import Manifest, read_checkpoint
from pipelines.artifacts.curve import Curve, row_of
from pipelines.artifacts.paths import checkpoint_path, published_journal, resume_folder
from pipelines.artifacts.run_results import read_run
from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.connection import on_a_worker
from pipelines.common.atomic_files import alone
from pipelines.common.errors import UserError, no_command
from pipelines.common.source_code import code_version
from pipelines.config.schema import Experiment
from pipelines.evaluate.stage import measure
from pipelines.sweep.result import DONE, FAILED, STOPPED, Folder, Result, of_documents
from pipelines.tracking.journal import Journal, open_journal
from pipelines.tracking.live import Tracking
from pipelines.train.core.manifest import make_manifest
from pipelines.train.core.publish import publish
from pipelines.train.core.trainer import fit
from pipelines.train.distributed import fit_on_ray

FRACTION, BOUND = "fraction", "training_bound_bits"  # what is reported to Tune
SWEPT = "sweep_"  # the names of experiments of trials begin so (see Plan.experiment)


def manifest_of(experiment: Experiment, name: str) -> Manifest:
    spec = RunSpec(experiment, name)
    return make_manifest(spec, spec.shards())


def trial_hash(experiment: Experiment, name: str) -> str:
    """Hash of all that decides a trial's result: its training, and how it is measured."""
    spec = manifest_of(experiment, name).spec_hash
    decisive = (spec, asdict(experiment.evaluation), code_version("evaluate"))
    return sha256(json.dumps(decisive).encode()).hexdigest()[:16]


class Rows(TuneReportCallback):
    """The same as ``watch`` in run_trial, for training on workers of Ray Train, which calls this in
    another process than the trial's.
    """

    def __init__(self, folder: Folder, hash: str, steps: int) -> None:
        super().__init__()
        self.folder, self.hash, self.steps, self.root = folder, hash, steps, Path.cwd()

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        row = row_of(metrics[0])
        with chdir(self.root):
            self.folder.add_row(self.hash, row)
        if row.step < self.steps:
            reported = {FRACTION: row.step / self.steps, BOUND: row.bound_bits}
            super().after_report(run_context, [reported], None)


def run_trial(
    experiment: Experiment,
    name: str,
    sweep: str,
    parent: str,
    report: Callable[[float, float], None],
) -> Result:
    """Train and evaluate a trial, from its last checkpoint on, and write its result.

    ``parent`` is the key of the sweep's MLflow run. ``report`` is called during training with
    the fraction of the budget and the training bound in bits per token, and may end the process.
    An exception becomes a result too, with the traceback in log.txt.
    """
    folder = Folder(sweep, name)
    folder.path.mkdir(parents=True, exist_ok=True)
    with (
        open(folder.log, "a", encoding="utf-8", buffering=1) as log,
        redirect_stdout(log),
        redirect_stderr(log),
    ):
        manifest, spec = manifest_of(experiment, name), RunSpec(experiment, name)
        hash = trial_hash(experiment, name)
        steps = experiment.steps(experiment.runs[name])

        def watch(figures: dict[str, float]) -> None:
            row = row_of(figures)
            folder.add_row(hash, row)
            if row.step < steps:  # a trial that is fully trained must not be stopped any more
                report(row.step / steps, row.bound_bits)

        try:
            with alone(resume_folder(experiment.name, name)):
                nest(parent, manifest, experiment)
                if not is_trained(manifest):
                    for row in folder.read_rows(hash):  # of an earlier attempt
                        report(row.step / steps, row.bound_bits)
                    if experiment.compute.workers > 1:
                        fit_on_ray(spec, manifest, [Rows(folder, hash, steps)])
                    else:
                        fit(spec, manifest, watch=watch)
                    publish(spec, manifest)
                if experiment.compute.workers > 1:
                    on_a_worker(experiment, partial(measure, spec))
                else:
                    measure(spec)
            run = read_run(spec)
            documents = of_documents(run.details)
            result = Result(name, hash, DONE, "", "", run.evaluation, documents, run.curve)
        except Exception as error:
            traceback.print_exc()
            line = " ".join(f"{error}".split()) or type(error).__name__
            if not isinstance(error, UserError):
                line = f"{type(error).__name__}: {line}"
            result = Result(name, hash, FAILED, error=line, curve=folder.read_rows(hash))
            mark(experiment, manifest, "FAILED", {"failure": line[:500]}, result.curve)
        folder.write(result)
    return result


def is_trained(manifest: Manifest) -> bool:
    path = checkpoint_path(manifest.experiment, manifest.run_name)
    try:
        return path.exists() and read_checkpoint(path)[1].spec_hash == manifest.spec_hash
    except UserError:  # damaged: it is trained again
        return False


def nest(parent: str, manifest: Manifest, experiment: Experiment) -> None:
    """Nest the MLflow run that training will begin or continue in ``parent``'s."""
    begun = any(resume_folder(manifest.experiment, manifest.run_name).glob("*.ckpt"))
    journal = journal_of(manifest, experiment, begun)
    ends = {key: "" for key in ("failure", "stopped_early") if journal.run.tags.get(key)}
    if journal.run.parent != parent or ends:  # of an earlier attempt
        journal.append(parent=parent, tags=ends)


def journal_of(manifest: Manifest, experiment: Experiment, go_on: bool) -> Journal:
    """That of a trial which has been trained, or is trained; see open_journal."""
    path = published_journal(manifest.experiment, manifest.run_name)
    if is_trained(manifest):
        return Journal(path)
    command = f"python -m pipelines.sweep sweep={experiment.name.removeprefix(SWEPT)}"
    return open_journal(manifest, experiment, go_on, command)


def mark(
    experiment: Experiment, manifest: Manifest, status: str, tags: dict[str, str], rows: Curve
) -> None:
    """End the MLflow run of an unfinished trial, with the reason in its tags."""
    journal = journal_of(manifest, experiment, go_on=True)
    for row in rows:
        journal.add_row(row.figures())
    journal.append(tags=tags)
    Tracking(journal).finish(status)


def settle(
    experiment: Experiment, name: str, sweep: str, parent: str, stopper: str, error: str
) -> Result:
    """The result of a trial whose process has ended: its own, or that it was stopped or lost."""
    folder, manifest = Folder(sweep, name), manifest_of(experiment, name)
    hash = trial_hash(experiment, name)
    if result := folder.read(hash):
        return result
    if folder.result.exists() and not error:
        error = "the sources changed while it ran"
    rows = folder.read_rows(hash)
    nest(parent, manifest, experiment)
    if error:
        result = Result(name, hash, FAILED, error=error, curve=rows)
        mark(experiment, manifest, "FAILED", {"failure": error[:500]}, rows)
    else:
        result = Result(name, hash, STOPPED, stopper, curve=rows)
        mark(experiment, manifest, "KILLED", {"stopped_early": "yes"}, rows)
    folder.write(result)
    return result


if __name__ == "__main__":
    no_command(__doc__, "pipelines.sweep")
