"""One trial of a sweep: trained and evaluated like any run, and its result in a file of its own.

sweeps/<sweep>/trials/<trial>/result.json appears only when a trial has ended, at once and whole. It
holds what it is the result of, so that a trial is not run again for as long as that is the same.
"""

import json
import traceback
from collections.abc import Callable
from contextlib import chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock
from ray.tune.integration.ray_train import TuneReportCallback

from pipelines.artifacts.checkpoint import Manifest, checkpoint_path, read_checkpoint, resume_folder
from pipelines.artifacts.results import Curve, Measured, read_run, training_bits
from pipelines.artifacts.tokens.shards import Shards
from pipelines.cluster.connection import on_a_worker
from pipelines.common.atomic_files import alone, replace_file
from pipelines.common.errors import UserError
from pipelines.common.source_code import code_version
from pipelines.config.schema import Experiment
from pipelines.evaluate.stage import measure
from pipelines.tracking.run import Tracking, find_record
from pipelines.tracking.store import store_uri
from pipelines.train.core.manifest import make_manifest
from pipelines.train.core.publish import publish
from pipelines.train.core.trainer import Process, fit
from pipelines.train.distributed import fit_on_ray

DOCUMENTS = ("bound_bits", "document_tokens", "document_bytes")  # kept of details.json
FRACTION, BOUND = "fraction", "training_bound_bits"  # what Tune hears of a trial
DONE, STOPPED, FAILED = "done", "stopped early", "failed"


@dataclass
class Result:
    """What became of a trial; measured figures are there only if it is done."""

    trial: str
    hash: str  # of all that decides it
    status: str  # DONE, STOPPED or FAILED
    stopper: str = ""  # what stopped it early: the settings of ASHA
    error: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)  # evaluation.json
    documents: dict[str, list[float]] = field(default_factory=dict)  # see DOCUMENTS
    curve: Curve = field(default_factory=list)

    def measured(self, experiment: Experiment) -> Measured:
        """The trial as a run of a comparison."""
        run = experiment.runs[self.trial]
        latent_bits = experiment.model_config(run).latent_bits
        return Measured(
            name=self.trial,
            run=run,
            latent_bits=latent_bits,
            source=experiment.data[run.data].source,
            metrics=self.metrics,
            details=self.documents,
            curve=self.curve,
        )


def manifest_of(experiment: Experiment, name: str) -> Manifest:
    return make_manifest(experiment, name, Shards(Path("data/tokens") / experiment.runs[name].data))


def trial_hash(experiment: Experiment, name: str) -> str:
    """Hash of all that decides a trial's result: its training, and how it is measured."""
    spec = manifest_of(experiment, name).spec_hash
    decisive = (spec, asdict(experiment.evaluation), code_version("evaluate"))
    return sha256(json.dumps(decisive).encode()).hexdigest()[:16]


class Folder:
    """sweeps/<sweep>/trials/<trial>/: the result, and until then the rows of the curve."""

    def __init__(self, sweep: str, trial: str) -> None:
        self.path = Path("sweeps") / sweep / "trials" / trial
        self.result, self.rows = self.path / "result.json", self.path / "rows.jsonl"
        self.log = self.path / "log.txt"

    def read(self, hash: str) -> Result | None:
        """The result, if there is one of this very trial."""
        try:
            found = Result(**json.loads(self.result.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            print(f"{self.result}: passed over, not readable ({error})")
            return None
        return found if found.hash == hash else None

    def write(self, result: Result) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with replace_file(self.result) as file:
            file.write(json.dumps(asdict(result)).encode())

    def add_row(self, hash: str, row: dict[str, float]) -> None:
        with open(self.rows, "a") as file:
            file.write(json.dumps({"hash": hash, **row}) + "\n")

    def read_rows(self, hash: str) -> Curve:
        """Rows of this very trial, each step once however often the trial was cut short."""
        rows: dict[float, dict[str, float]] = {}
        lines = self.rows.read_text().splitlines() if self.rows.exists() else []
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:  # cut short
                continue
            if row.pop("hash") == hash:
                rows[row["step"]] = row
        return [rows[step] for step in sorted(rows)]


class Rows(TuneReportCallback):
    """What ``watch`` of run_trial does, where training is on workers of Ray Train: it is called in
    another process than the trial's, and has a way of its own to Tune.
    """

    def __init__(self, folder: Folder, hash: str, steps: int) -> None:
        super().__init__()
        self.folder, self.hash, self.steps, self.root = folder, hash, steps, Path.cwd()

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        row = metrics[0]
        with chdir(self.root):
            self.folder.add_row(self.hash, row)
        if row["step"] < self.steps:
            heard = {FRACTION: row["step"] / self.steps, BOUND: training_bits(row)}
            super().after_report(run_context, [heard], None)


def run_trial(
    experiment: Experiment,
    name: str,
    sweep: str,
    parent: str,
    report: Callable[[float, float], None],
) -> Result:
    """Train and evaluate a trial, or go on with it, and write its result.

    ``parent`` is the key of the sweep's MLflow record. ``report`` is called during training with
    the fraction of the budget and the training bound in bits per token, and may end the process.
    What goes wrong is a result too, and its traceback is in log.txt.
    """
    folder = Folder(sweep, name)
    folder.path.mkdir(parents=True, exist_ok=True)
    with open(folder.log, "a", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        manifest = manifest_of(experiment, name)
        hash = trial_hash(experiment, name)
        steps = experiment.steps(experiment.runs[name])

        def watch(row: dict[str, float]) -> None:
            folder.add_row(hash, row)
            if row["step"] < steps:  # a trial that is trained is not to be stopped any more
                report(row["step"] / steps, training_bits(row))

        try:
            with alone(resume_folder(experiment.name, name)):
                nest(parent, manifest, experiment)
                if not is_trained(manifest):
                    for row in folder.read_rows(hash):  # of an earlier attempt
                        report(row["step"] / steps, training_bits(row))
                    if experiment.compute.workers > 1:
                        fit_on_ray(experiment, name, [Rows(folder, hash, steps)])
                    else:
                        fit(experiment, name, Process(), watch=watch)
                    publish(experiment, name)
                if experiment.compute.workers > 1:
                    on_a_worker(experiment, partial(measure, experiment, name))
                else:
                    measure(experiment, name)
            one = read_run(experiment, name)
            documents = {key: one.details[key] for key in DOCUMENTS if key in one.details}
            result = Result(name, hash, DONE, "", "", one.metrics, documents, one.curve)
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
    """Have the record that training will continue or begin sent as a run nested in ``parent``'s."""
    begun = any(resume_folder(manifest.experiment, manifest.run_name).glob("*.ckpt")) or is_trained(
        manifest
    )
    folder = find_record(store_uri(), manifest, experiment, go_on=begun).folder
    with FileLock(folder / "lock") if folder.exists() else nullcontext():
        record = find_record(store_uri(), manifest, experiment, go_on=begun)
        ends = {key: "" for key in ("failure", "stopped_early") if record.tags.get(key)}
        if record.parent != parent or ends:
            record.parent = parent
            record.tags = {**record.tags, **ends}  # of an earlier attempt
            record.save()


def mark(
    experiment: Experiment, manifest: Manifest, status: str, tags: dict[str, str], rows: Curve
) -> None:
    """End the MLflow run of a trial that was not finished, and say why in its tags."""
    tracking = Tracking(experiment.name)
    known = find_record(store_uri(), manifest, experiment, go_on=True)
    if known.folder.exists():
        with FileLock(known.folder / "lock"):  # a process that is being stopped may still write it
            pass
    tracking.start(manifest, experiment, go_on=True)
    tracking.log_rows(rows)
    for key, value in tags.items():
        tracking.tag(key, value)
    tracking.finish(status)


def settle(
    experiment: Experiment, name: str, sweep: str, parent: str, stopper: str, error: str
) -> Result:
    """The result of a trial whose process has ended: its own, or that it was stopped or lost."""
    folder, manifest = Folder(sweep, name), manifest_of(experiment, name)
    hash = trial_hash(experiment, name)
    if found := folder.read(hash):
        return found
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
