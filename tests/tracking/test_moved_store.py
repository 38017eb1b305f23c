"""A copied or moved project has its artifacts, and its records, where it is now."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.tracking.location import bring_places_up_to_date, store_uri
from pipelines.tracking.outbox import records
from pipelines.tracking.run import Tracking, main
from pipelines.tracking.store import Store
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs
from tests.tracking.conftest import manifest, settings


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def log_again():
    """What another evaluation does: it sends artifacts."""
    Path("details.json").write_text("of the copy")
    tracking = Tracking("smoke")
    tracking.start(manifest(), settings(), go_on=True)
    tracking.log_artifact(Path("details.json"))
    tracking.finish()


def downloaded(folder):
    client, (run,) = tracked_runs()
    path = Path(client.download_artifacts(run.info.run_id, "details.json", str(folder)))
    return run, path


@rejects(
    "tracking/store.py",
    "bring_places_up_to_date(self.database)",
    "pass",
    "artifacts of a copied project written into the original",
)
def test_a_copy_writes_nothing_into_the_original_and_finds_its_own_artifacts(
    original, project, tmp_path
):
    before = content(original)
    log_again()
    assert content(original) == before
    run, path = downloaded(tmp_path)
    assert path.read_text() == "of the copy"
    mine = project / "mlartifacts/smoke"
    assert run.info.artifact_uri == (mine / run.info.run_id / "artifacts").as_uri()
    assert (mine / run.info.run_id / "artifacts/details.json").read_text() == "of the copy"
    with sqlite3.connect("mlflow.db") as database:
        assert not [line for line in database.iterdump() if str(original) in line]


def test_a_moved_project_goes_on_in_its_new_place(project, tmp_path, monkeypatch):
    moved = tmp_path / "moved"
    project.rename(moved)
    monkeypatch.chdir(moved)
    log_again()
    assert not project.exists()
    run, path = downloaded(tmp_path)
    assert path.read_text() == "of the copy" and str(moved) in run.info.artifact_uri
    models = MlflowClient(store_uri()).search_logged_models([run.info.experiment_id])
    assert models and all(str(moved) in model.artifact_location for model in models)


def test_a_copy_where_the_original_waits_for_a_server_sends_it_in_its_own_place(
    original, project, monkeypatch, capsys
):
    """As records of an earlier version, which name the store's folder."""
    (record,) = records()
    path = record.folder / "record.json"
    raw = json.loads(path.read_text())
    for key in ("inputs", "models", "model_ids", "experiment_note"):
        raw.pop(key)
    raw["metrics"] = [point[:4] for point in raw["metrics"]] + [["late", 1.0, 5, 5]]
    path.write_text(json.dumps(raw | {"uri": f"sqlite:///{original}/mlflow.db"}))
    before = content(original)
    main()
    assert "1 runs brought up to date" in capsys.readouterr().out
    _, (run,) = tracked_runs()
    assert run.data.metrics["late"] == 1.0 and run.info.run_id == record.run_id
    assert content(original) == before


def test_a_record_of_a_store_that_is_named_stays_with_it(project, monkeypatch):
    named = f"sqlite:///{project}/elsewhere/mlflow.db"
    (project / "elsewhere").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
    log_again()
    assert {record.uri for record in records()} == {"sqlite:///mlflow.db", named}
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert {record.uri for record in records()} == {"sqlite:///mlflow.db", named}
    assert len(list((project / "elsewhere/mlartifacts/smoke").iterdir())) == 1


@pytest.mark.parametrize(
    ("place", "stays"),
    [
        ("s3://bucket/mlartifacts/smoke", True),
        ("mlflow-artifacts:/smoke", True),
        ("file:///big/disk/of/mine", True),
        ("file:///old/mlartifacts/other", True),  # no experiment of this name
        ("file:///old/mlartifacts/smoke", False),
    ],
)
def test_only_places_that_are_beside_a_store_move_with_it(project, place, stays):
    Store(store_uri())
    database = project / "mlflow.db"

    def run(*statement):
        with sqlite3.connect(database) as connection:
            return connection.execute(*statement).fetchall()

    run("UPDATE experiments SET artifact_location = ? WHERE name = 'smoke'", (place,))
    run("UPDATE runs SET artifact_uri = ?", (f"{place}/id/artifacts",))
    bring_places_up_to_date(database)
    here = (project / "mlartifacts/smoke").as_uri()
    expected = place if stays else here
    (found,) = run("SELECT artifact_location FROM experiments WHERE name = 'smoke'")
    assert found == (expected,)
    assert run("SELECT artifact_uri FROM runs") == [(f"{expected}/id/artifacts",)]


def test_artifacts_of_a_shared_store_stay_where_an_earlier_version_put_them(
    project, tmp_path, monkeypatch
):
    """In the project that made the experiment, beside which the store is not."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shutil.move("mlflow.db", shared)
    with sqlite3.connect(shared / "mlflow.db") as connection:
        before = connection.execute("SELECT artifact_uri FROM runs").fetchall()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shared}/mlflow.db")
    Store(store_uri())
    with sqlite3.connect(shared / "mlflow.db") as connection:
        assert connection.execute("SELECT artifact_uri FROM runs").fetchall() == before


def test_the_copied_run_is_the_same_run(project):
    (record,) = records()
    log_again()
    _, (run,) = tracked_runs()
    assert run.info.run_id == record.run_id and run.info.run_name == RUN
