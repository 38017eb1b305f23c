"""The tracking store may be away, slow or dying: nothing is lost, nothing is sent twice."""

import multiprocessing
import os
import shutil
import socket
import sqlite3
from pathlib import Path
from threading import Thread

from alembic.operations import Operations
from mlflow import MlflowClient

from pipelines.tracking.location import store_uri
from pipelines.tracking.outbox import records
from pipelines.tracking.run import Tracking, main
from pipelines.tracking.store import Store
from tests.support.training import RUN, tracked_runs, train_run
from tests.tracking.conftest import check_complete, everything, lost, manifest, settings


def test_a_store_that_is_away_gets_everything_when_it_is_back(workspace, monkeypatch, capsys):
    with lost(monkeypatch, lambda n: True):
        _, rows = train_run()
    said = capsys.readouterr().err
    assert said.count("does not answer (no answer); going on") == 1
    assert "kept for MLflow in tracking/smoke/free_k1_8-" in said
    assert [record.pending() for record in records()] == [True]
    main()
    assert "1 runs brought up to date" in capsys.readouterr().out
    check_complete(rows)


def test_a_store_whose_database_fails_is_one_line(workspace, capsys):
    with sqlite3.connect("mlflow.db") as database:
        database.execute("DROP TABLE latest_metrics")
    train_run()
    said = capsys.readouterr().err
    assert said.count("does not answer ((sqlite3.OperationalError) no such table") == 1
    assert "Traceback" not in said


def test_a_server_that_refuses_or_hangs_does_not_stop_training(workspace, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        train_run()
        assert "does not answer" in capsys.readouterr().err
        Thread(target=hanging.close).start()
    _, rows = train_run("baseline")  # now refused
    assert "does not answer" in capsys.readouterr().err
    assert len(rows) == 20
    assert all(record.pending() for record in records())


def test_a_finished_run_trained_again_is_another_mlflow_run(workspace):
    train_run()
    shutil.rmtree("resume")
    train_run()
    assert len(tracked_runs()[1]) == 2


def test_a_record_that_cannot_be_read_is_passed_over(project, capsys):
    (path,) = Path("tracking/smoke").glob(f"{RUN}-*/record.json")
    path.write_text("{")
    assert list(records()) == []
    assert "passed over" in capsys.readouterr().out


def test_evaluation_adds_to_the_run_of_the_card_or_makes_one_where_the_store_has_none(
    project, monkeypatch
):
    """On another machine, or with another store, the record of the training is not there."""
    shutil.rmtree("tracking")
    for uri in (store_uri(), f"sqlite:///{project}/other.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        evaluation = Tracking("smoke")
        evaluation.start(manifest(), settings(), go_on=True)
        evaluation.log_figures("eval", {"bound": 1.5}, step=20)
        evaluation.finish()
        client = MlflowClient(uri)
        found = client.get_experiment_by_name("smoke")
        (run,) = client.search_runs([found.experiment_id])
        assert run.data.metrics["eval/bound"] == 1.5
        assert run.data.params["kappa_bits"] == "0.125"
        assert run.info.status == "FINISHED"


def test_a_run_deleted_in_mlflow_is_made_anew_with_everything(project):
    before = everything()
    client, (run,) = tracked_runs()
    client.delete_run(run.info.run_id)
    (record,) = records()
    Store(store_uri()).send(record)
    # logged models are not deleted with their run, and have the figures of the new one as well
    assert everything() | {"models": before["models"]} == before
    assert tracked_runs()[1][0].info.run_id != run.info.run_id


def test_a_kill_while_the_store_is_made_leaves_none(tmp_path, monkeypatch):
    """MLflow makes its tables in many steps, and cannot go on from any but the last. The name may
    have options for SQLite's driver.
    """
    made, uri = [], f"sqlite:///{tmp_path}/new.db?timeout=30"

    def add_column(*arguments, **keywords):
        made.append(arguments)
        if len(made) == 3:
            os._exit(9)
        return plain(*arguments, **keywords)

    plain = Operations.add_column
    with monkeypatch.context() as patch:
        patch.setattr(Operations, "add_column", add_column)
        process = multiprocessing.get_context("fork").Process(target=Store, args=(uri,))
        process.start()
        process.join()
    assert process.exitcode == 9
    assert not (tmp_path / "new.db").exists() and (tmp_path / "new.db.partial").exists()
    assert Store(uri).client.get_experiment("0").name == "Default"
    assert (tmp_path / "new.db").exists() and not list(tmp_path.glob("*.partial*"))
