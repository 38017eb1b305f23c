"""A copied or moved project has its artifacts where it is; what is deleted in MLflow comes back."""

import os
from contextlib import chdir, suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.commands.tracking import main
from pipelines.tracking import sync as tracking_sync
from pipelines.tracking.store import Store, store_uri
from pipelines.tracking.sync import Sync
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs
from tests.tracking.conftest import everything, manifest, on_disk, sync


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_writes_nothing_into_the_original_and_finds_its_own_artifacts(original, project):
    before = content(original)
    details = Path("results/smoke", RUN, "details.json")
    details.write_text(details.read_text() + "\n")  # what another evaluation does
    _, (earlier,) = tracked_runs()
    sync()
    _, (run,) = tracked_runs()
    tag = run.data.tags["file.details.json"]
    assert tag != earlier.data.tags["file.details.json"]
    assert tag.split()[0] == str(details) and not Path(tag).is_absolute()
    assert run.data.tags["file.suite_samples"].split()[0] == f"results/smoke/{RUN}/suite_samples"
    export = project / "exports/smoke/model"
    export.mkdir(parents=True)
    (export / "config.json").write_text("{}")
    entry = tracking_sync.ModelEntry(manifest())
    said = entry.hold(export.relative_to(project))
    assert said == f"models:/{entry.id}: in MLflow, the tag `exported` names it"
    model = MlflowClient(store_uri()).get_logged_model(entry.id)
    assert (project / model.tags["exported"] / "config.json").exists()
    assert content(original) == before
    assert on_disk().key == run.data.tags["record"]


def test_a_server_that_takes_files_gets_them_and_each_again_when_it_changes(project, monkeypatch):
    """Its place for them is not of this machine."""
    (project / "mlflow.db").unlink()
    for module in (tracking_sync,):
        monkeypatch.setattr(module, "is_local_uri", lambda place: False)
    details = Path("results/smoke", RUN, "details.json")
    for end in ("\n", "\n\n"):
        details.write_text(details.read_text() + end)
        sync()
        client, (run,) = tracked_runs()
        there = project / "mlartifacts/smoke" / run.info.run_id / "artifacts"
        assert {path.name for path in there.iterdir()} == {
            "details.json", "suite.json", "words.jsonl.gz"
        }  # fmt: skip
        assert (there / "details.json").read_bytes() == details.read_bytes()
    export = project / "exported"
    export.mkdir()
    (export / "config.json").write_text("{}")
    entry = tracking_sync.ModelEntry(manifest())
    assert entry.hold(export) == f"models:/{entry.id}: the same, in MLflow"
    assert [file.path for file in client.list_logged_model_artifacts(entry.id)] == ["config.json"]


def test_an_experiment_deleted_while_a_run_goes_on_is_restored_by_the_next_try(project, capsys):
    run, sync = on_disk(), Sync(Store())
    run.models = []  # as while it is trained
    run.points = [point for point in run.points if not point.origin]
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


@rejects("Sync.send_points: if «→True or »known", "a rebuilt store gets the curve twice")
def test_a_deleted_database_is_rebuilt_twice_as_once(original, project, capsys):
    with chdir(original):  # the copy's database is not open yet
        before = everything()
    for lost in ("mlflow.db", "mlflow.db.lock"):
        (project / lost).unlink(missing_ok=True)
    main.callback()
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
    main.callback()
    assert everything() == before


def test_results_of_another_training_are_not_those_of_this_one(project):
    """Stage `train` leaves what was measured before until the next stage replaces it."""
    assert {model["name"] for model in on_disk().models}
    journal = project / "checkpoints/smoke/free_k1_8/tracking.jsonl"
    journal.write_text(journal.read_text().replace(on_disk().key, "another"))
    run = on_disk()
    assert (run.key, run.models, run.files) == ("another", [], [])
