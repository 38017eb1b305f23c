"""A project with one run, trained, measured at two budgets and scored on a suite, for copies."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.artifacts.checkpoint import peek_manifest
from pipelines.artifacts.result_files import write_json
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.suite_results import SuiteBudget, SuiteResults, TaskResult, TaskScore
from pipelines.config.load import load_experiment
from pipelines.evaluate.stage import measure
from pipelines.host.files import checkpoint_path, published_journal, results_folder
from pipelines.tracking.measured import read_tracked
from pipelines.tracking.store import Store
from pipelines.tracking.sync import Sync, sync_stage
from tests.support.training import RUN, tracked_runs, train_run
from tests.support.workspace import enter

BATCH = 520  # tokens of a step
BUDGET, TOKENS = 10 * BATCH, 20 * BATCH
NOT_OURS = ("mlflow.user", "mlflow.parentRunId")
CALLS = (
    *("create_run", "search_runs", "set_terminated", "log_batch", "log_inputs", "log_outputs"),
    *("create_logged_model", "finalize_logged_model", "set_experiment_tag", "set_tag"),
)


def suite_results(manifest, *budgets):
    """A suite of one task; ``budgets`` are (tokens, listed tokens, score)."""
    return SuiteResults(
        suite="mini",
        harness="lm_eval 0",
        scoring="marginal",
        samples=2,
        limit=3,
        seed=0,
        tasks={"words": TaskResult(0.5, 0.1, metric="acc", task="words", documents=3, version="1")},
        skipped={},
        settings={},
        budgets=[
            SuiteBudget(tokens, listed, True, {"words": TaskScore(score, 0.1)})
            for tokens, listed, score in budgets
        ],
        manifest=manifest,
    )


def settings():
    """The smoke experiment with a smaller budget, and little that is measured."""
    experiment = load_experiment()
    experiment.runs[RUN].budgets = [BUDGET]
    experiment.evaluation.tokens = 2 * BATCH
    experiment.evaluation.groups, experiment.evaluation.iwae_samples = 2, 2
    experiment.evaluation.probe_sequences = 64
    return experiment


def manifest():
    found = peek_manifest(checkpoint_path("smoke", RUN))
    assert found is not None
    return found


def score():
    """What stage `suite` leaves, without its harness."""
    folder = results_folder("smoke", RUN)
    (folder / "suite_samples").mkdir(exist_ok=True)
    (folder / "suite_samples/words.jsonl.gz").write_bytes(b"samples")
    scored = suite_results(manifest(), (BUDGET, BUDGET, 0.25), (TOKENS, TOKENS, 0.5))
    write_json(folder / "suite.json", scored)
    sync_stage(RunSpec(settings(), RUN))


def on_disk():
    """The one run, as its files describe it."""
    return read_tracked(published_journal("smoke", RUN))


def sync():
    """What the command and each stage do."""
    Sync(Store())(on_disk())


def everything(but="no metrics"):
    """All that the store has of the one run, but for ids, times and metrics that begin so."""
    client, (run,) = tracked_runs()
    models = client.search_logged_models([run.info.experiment_id])
    return {
        "name": (run.info.run_name, run.info.status),
        "params": run.data.params,
        "tags": {k: v for k, v in run.data.tags.items() if k not in NOT_OURS},
        "metrics": {
            key: [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, key)]
            for key in run.data.metrics
            if not key.startswith(but)
        },
        "inputs": sorted((i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs),
        "models": sorted(
            (m.name, str(m.params), len(m.metrics or []), str(m.status)) for m in models
        ),
        "outputs": sorted(output.step for output in run.outputs.model_outputs),
    }


def check_complete(rows):
    """One MLflow run, finished, with all parameters and tags and each figure of a step once."""
    client, (run,) = tracked_runs()
    written = on_disk()
    assert run.info.status == "FINISHED"
    assert run.info.end_time == written.ended
    assert run.data.params == written.params and len(written.params) > 20
    assert written.tags.items() <= run.data.tags.items() and run.data.tags["arm"]
    for axis, x in (("curve", "step"), ("curve_by_tokens", "tokens")):
        for key in rows[0].keys() - {"step", "tokens"}:
            points = client.get_metric_history(run.info.run_id, f"{axis}/{key}")
            assert sorted((point.step, point.value) for point in points) == [
                (int(row[x]), float(row[key])) for row in rows
            ]


@contextmanager
def lost(monkeypatch, which):
    """MLflow calls whose number ``which`` picks fail, in turn before and after their work."""
    count = 0

    def wrap(call):
        def answer(*args, **kwargs):
            nonlocal count
            count += 1
            if not which(count):
                return call(*args, **kwargs)
            if count % 2:
                call(*args, **kwargs)  # done, but nobody hears of it
            raise MlflowException("no answer")

        return answer

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(MlflowClient, name, wrap(getattr(MlflowClient, name)))
        yield


@pytest.fixture(scope="session")
def original(tokenized, tmp_path_factory) -> Path:
    """Tests must not change it: they copy it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter(tokenized, tmp_path_factory.mktemp("original"), patch)
        train_run(RUN, budgets=[BUDGET])
        measure(RunSpec(settings(), RUN))
        score()
    return folder


@pytest.fixture
def project(original, tmp_path, monkeypatch) -> Path:
    """A copy of it in another folder, which is the current one."""
    folder = tmp_path / "copy of project"
    shutil.copytree(original, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder
