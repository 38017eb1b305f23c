"""What is deleted in MLflow, or with its database, comes back."""

import os
from contextlib import chdir, suppress

import pytest
from mlflow.exceptions import MlflowException

from pipelines.tracking.__main__ import main
from pipelines.tracking.store import Store
from pipelines.tracking.sync import Sync
from tests.support.mutants import rejects
from tests.support.training import tracked_runs
from tests.tracking.conftest import everything, on_disk


@rejects('if «experiment.lifecycle_stage != "active"→False»:', "a deleted experiment stays deleted")
def test_an_experiment_deleted_while_a_run_goes_on_is_restored_by_the_next_try(project, capsys):
    run, sync = on_disk(), Sync(Store())
    run.models = []  # as while it is trained
    run.points = [point for point in run.points if not point.of]
    sync(run)
    client, (known,) = tracked_runs()
    run.add("late", {"figure": 1.0}, 1, run.started)
    with pytest.MonkeyPatch.context() as patch:  # between two calls of a sync
        patch.setattr(sync.store, "experiment_id", lambda name: known.info.experiment_id)
        client.delete_experiment(known.info.experiment_id)
        with pytest.raises(MlflowException):
            sync(run)
    with suppress(MlflowException):  # as the thread of a training does
        sync(run)
    said = capsys.readouterr().err
    assert said.count("MLflow experiment smoke was deleted; restored, with the runs it had") == 1
    _, (same,) = tracked_runs()
    assert same.info.run_id == known.info.run_id and same.data.metrics["late/figure"] == 1.0
    assert client.get_experiment_by_name("smoke").lifecycle_stage == "active"


@rejects(
    "«[point for point in run.points if known.lacks(point)]→run.points»",
    "a rebuilt store gets the curve a second time",
)
def test_a_deleted_database_is_rebuilt_twice_as_once(original, project, capsys):
    with chdir(original):  # the copy's database is not open yet
        before = everything()
    for lost in ("mlflow.db", "mlflow.db.lock"):
        (project / lost).unlink(missing_ok=True)
    main()
    assert "1 runs are up to date" in capsys.readouterr().out
    assert everything() == before
    client, (run,) = tracked_runs()
    described = client.get_experiment_by_name("smoke").tags["mlflow.note.content"]
    assert "make repro EXPERIMENT=smoke" in described
    times = [p.timestamp for p in client.get_metric_history(run.info.run_id, "curve/ce_nats")]
    assert times == sorted(times)
    assert run.info.start_time <= times[0] and times[-1] <= run.info.end_time
    for path in (*project.rglob("*.jsonl"), *project.rglob("*.json")):
        os.utime(path, (1e9, 1e9))  # as after `dvc checkout`: figures have the times of their files
    main()
    assert everything() == before


def test_a_run_deleted_in_mlflow_stays_deleted(project):
    client, (run,) = tracked_runs()
    client.delete_run(run.info.run_id)
    main()
    assert tracked_runs()[1] == []


@rejects(
    "if manifest« and manifest.tracking_key == run.key→»:",
    "the evaluation of an earlier training shown as that of this one",
)
def test_results_of_another_training_are_not_those_of_this_one(project):
    """Stage `train` leaves what was measured before until the next stage replaces it."""
    assert {model["name"] for model in on_disk().models}
    journal = project / "checkpoints/smoke/free_k1_8/tracking.jsonl"
    journal.write_text(journal.read_text().replace(on_disk().key, "another"))
    run = on_disk()
    assert (run.key, run.models, run.files) == ("another", [], [])
