"""Bring back what a store has lost: from the outbox, and else from checkpoints/ and results/."""

from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

from filelock import FileLock, Timeout
from mlflow.entities import Run
from omegaconf import OmegaConf

from pipelines.artifacts import preregistration, results
from pipelines.artifacts.checkpoint import Manifest, peek
from pipelines.artifacts.curve import Curve, read_curve
from pipelines.artifacts.paths import results_folder
from pipelines.artifacts.results import Evaluation, SuiteResults
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.tracking.describe import experiment_note, run_params, run_tags, statement
from pipelines.tracking.figures import log_data, log_evaluation, log_suite
from pipelines.tracking.location import in_project, store_uri
from pipelines.tracking.log import RunLog, params_with
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.store import AWAY, KEY, Store

CHECKPOINTS = Path("checkpoints")
SAMPLES = "suite_samples"


class Unsent(RunLog):
    """Saved once it is whole."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def commit(self) -> None:
        pass


def main() -> None:
    """Send every run of this project that the store lacks, and what it lacks of the others. A run
    that somebody has deleted in MLflow stays deleted. Raises UserError if the store is away.
    """
    store = Store(store_uri())
    checkpoints = sorted(CHECKPOINTS.glob("*/*/last.ckpt"))
    waiting = [record for record in records() if record.uri == in_project(store.uri)]
    try:
        for name in {r.experiment for r in waiting} | {path.parts[1] for path in checkpoints}:
            store.experiment_id(name)
        anew = sum(send_again(store, record) for record in waiting)
        anew += sum(bring_back(store, path) for path in checkpoints)
    except AWAY as error:
        raise UserError(f"MLflow at {store.uri} does not answer: {error}") from None
    print(f"{anew} runs made anew at {store.uri}, which has all runs of this project now")


def send_again(store: Store, record: Record) -> bool:
    """Send a record; returns whether its run was made anew."""
    stage = store.stage_of(record.run_id) if record.run_id else ""
    if stage == "deleted":
        return False
    try:
        with FileLock(record.folder / "lock", timeout=0):
            store.send(record)
    except Timeout:  # its own stage is at it
        return False
    return not stage


def bring_back(store: Store, path: Path) -> bool:
    """Send what is known of a trained run; returns whether it was made anew."""
    manifest = peek(path)
    if manifest is None:
        say(f"{path}: passed over, not a readable checkpoint of this project")
        return False
    known = [
        record
        for record in records(manifest.experiment, manifest.run_name)
        if record.spec_hash == manifest.spec_hash and record.uri == in_project(store.uri)
    ]
    run = None if known else run_of(store, manifest)
    record = described(store, path, manifest)
    if known:  # one of an earlier version has fewer parameters and tags
        params, tags, record = record.params, record.tags, known[-1]
        record.params = params_with(record.params, params)
        record.tags = tags | record.tags
    if run:
        record.key = run.data.tags.get(KEY, record.key)
    record.folder.mkdir(parents=True, exist_ok=True)
    log_results(Unsent(record), manifest)
    if run:
        leave_out(store, record, run)
    record.save()
    anew = send_again(store, record)
    return anew and not known


def described(store: Store, path: Path, manifest: Manifest) -> Record:
    """A new record of a run, from its checkpoint's manifest and what lies beside it."""
    curve = curve_of(manifest)
    ended = changed(path)
    started = ended - round(1000 * sum(seconds_of(curve)))
    record = Record(
        in_project(store.uri), manifest.experiment, manifest.run_name, manifest.spec_hash, started
    )
    record.status, record.ended = "FINISHED", ended
    resolved = path.with_name("config.yaml")
    model = OmegaConf.load(resolved).model if resolved.exists() else {}
    record.params = run_params(
        manifest, dict(model.get("optim", {})), curve[-1].step if curve else 0
    )
    record.tags = run_tags(manifest) | {KEY: record.key, "mlflow.source.name": "pipelines.train"}
    if stated := preregistration.read(manifest.experiment, manifest.run_name):
        record.tags |= statement(stated.question, stated.expectation)
    with suppress(UserError):  # no params.yaml, or one of an earlier version
        if (experiment := load_experiment()).name == manifest.experiment:
            record.experiment_note = experiment_note(experiment)
    return record


def curve_of(manifest: Manifest) -> Curve:
    path = results_folder(manifest.experiment, manifest.run_name) / "curve.csv"
    return read_curve(path) if path.exists() else []


def seconds_of(curve: Curve) -> list[float]:
    """That each row of a curve took."""
    tokens = pairwise([0, *(row.tokens for row in curve)])
    return [(b - a) / row.tokens_per_second for (a, b), row in zip(tokens, curve, strict=True)]


def log_results(log: RunLog, manifest: Manifest) -> None:
    """Log the curve, the evaluation and the suite as far as they are there."""
    folder, curve = results_folder(manifest.experiment, manifest.run_name), curve_of(manifest)
    log_data(log, manifest)
    if not curve:
        return
    ends = list(accumulate(seconds_of(curve)))
    times = [log.record.started + round(1000 * seconds) for seconds in ends]
    log.log_rows([row.figures() for row in curve], times)
    try:
        log_measured(log, manifest, folder, curve[-1].tokens)
    except UserError as error:
        say(f"not brought back: {error}")


def log_measured(log: RunLog, manifest: Manifest, folder: Path, tokens: int) -> None:
    """Raises UserError if a file is not readable."""
    if (path := folder / "evaluation.json").exists():
        evaluation = results.read(path, Evaluation, "evaluate")
        log_evaluation(log, manifest, evaluation, changed(path))
        log.log_artifact(folder / "details.json")
    if (path := folder / "suite.json").exists():
        suite = results.read(path, SuiteResults, "suite")
        log_suite(log, manifest, suite, tokens, changed(path))
        for file in (path, *sorted((folder / SAMPLES).glob("*"))):
            log.log_artifact(file)


def changed(path: Path) -> int:
    """When a file was written, ms since 1970."""
    return int(path.stat().st_mtime * 1000)


def run_of(store: Store, manifest: Manifest) -> Run | None:
    """The store's run of this very training."""
    experiment_id = store.experiment_id(manifest.experiment)
    same = f"params.config_hash = '{manifest.spec_hash}' and attributes.run_name = "
    runs = store.client.search_runs([experiment_id], f"{same}'{manifest.run_name}'", max_results=1)
    return runs[0] if runs else None


def leave_out(store: Store, record: Record, run: Run) -> None:
    """Let a new record continue a run of the store, without what that has."""
    id, params, tags = run.info.run_id, run.data.params, run.data.tags
    points = {
        (key, point.value, point.step)
        for key in run.data.metrics
        for point in store.client.get_metric_history(id, key)
    }
    uploaded = {file.path for file in store.client.list_artifacts(id)}
    record.run_id, record.status = id, run.info.status
    record.tags |= {key: tags[key] for key in record.tags.keys() & tags}
    record.params = params_with(params, record.params)
    record.metrics = [p for p in record.metrics if (p[0], p[1], p[3]) not in points]
    record.artifacts = [name for name in record.artifacts if name not in uploaded]
    record.sent = {"params": len(params), "tags": tags, "status": record.status}
