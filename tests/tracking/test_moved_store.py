"""A copied or moved project has its artifacts, and its records, where it is now."""

import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.tracking.location import bring_places_up_to_date, store_uri
from pipelines.tracking.outbox import records
from pipelines.tracking.run import Tracking
from pipelines.tracking.store import Store
from tests.support.mutants import rejects
from tests.support.training import tracked_runs
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


@rejects(
    "bring_places_up_to_date(self.database)",
    "pass",
    "artifacts of a copied project written into the original",
)
def test_a_copy_writes_nothing_into_the_original_and_finds_its_own_artifacts(
    original, project, tmp_path
):
    before = content(original)
    (record,) = records()
    log_again()
    assert content(original) == before
    client, (run,) = tracked_runs()
    assert run.info.run_id == record.run_id
    path = Path(client.download_artifacts(run.info.run_id, "details.json", str(tmp_path)))
    assert path.read_text() == "of the copy"
    mine = project / "mlartifacts/smoke" / run.info.run_id / "artifacts"
    assert run.info.artifact_uri == mine.as_uri()
    assert (mine / "details.json").read_text() == "of the copy"
    with sqlite3.connect("mlflow.db") as database:
        assert not [line for line in database.iterdump() if str(original) in line]
    models = MlflowClient(store_uri()).search_logged_models([run.info.experiment_id])
    assert models and all(m.artifact_location.startswith(project.as_uri()) for m in models)


def test_a_record_of_a_store_that_is_named_stays_with_it(project, monkeypatch):
    named = f"sqlite:///{project}/elsewhere/mlflow.db"
    (project / "elsewhere").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
    log_again()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert {record.uri for record in records()} == {"sqlite:///mlflow.db", named}
    assert len(list((project / "elsewhere/mlartifacts/smoke").iterdir())) == 1


@pytest.mark.parametrize(
    ("place", "stays"),
    [
        ("s3://bucket/mlartifacts/smoke", True),
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
    expected = place if stays else (project / "mlartifacts/smoke").as_uri()
    (found,) = run("SELECT artifact_location FROM experiments WHERE name = 'smoke'")
    assert found == (expected,)
    assert run("SELECT artifact_uri FROM runs") == [(f"{expected}/id/artifacts",)]
