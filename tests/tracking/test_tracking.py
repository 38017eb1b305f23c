"""The tracking store may be away, slow or dying: nothing is lost, nothing is sent twice."""

import multiprocessing
import os
import shutil
import sqlite3
from contextlib import chdir
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import Mock

import pytest
from alembic.operations import Operations
from mlflow import MlflowClient

from pipelines.artifacts.run_spec import RunSpec
from pipelines.commands.tracking import main
from pipelines.host.errors import UserError
from pipelines.tracking import sync as tracking_sync
from pipelines.tracking.journal import Journal
from pipelines.tracking.store import Store, run_pages, store_uri
from pipelines.tracking.sync import Sync, sync_report, sync_stage
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs, train_run
from tests.tracking.conftest import check_complete, everything, lost, on_disk, settings, sync


def test_a_store_that_is_away_gets_everything_when_it_is_back(workspace, monkeypatch, capsys):
    with lost(monkeypatch, lambda n: True):
        _, rows = train_run()
    said = capsys.readouterr().err
    assert said.count("is not up to date (no answer); going on") == said.count("MLflow") == 1
    main.callback()
    assert "1 runs are up to date" in capsys.readouterr().out
    check_complete(rows)


def test_a_store_whose_database_fails_is_one_line(workspace, capsys):
    with sqlite3.connect("mlflow.db") as database:
        database.execute("DROP TABLE latest_metrics")
    train_run()
    said = capsys.readouterr().err
    assert said.count("is not up to date ((sqlite3.OperationalError) no such table") == 1
    assert "Traceback" not in said


BAD_STORES = {
    "sqlite:///": "names no file",
    "sqlite:///:memory:": "names no file",
    "sqlite:///away/x.db": "there is no folder .*away$",
    "sqlite:///data": "data: this is a folder, not a database",
    "sqlite:///params.yaml": "file is not a database",
    "postgresql://me:secret@127.0.0.1/x": "postgresql://127.*package psycopg is missing",
    "mysql://127.0.0.1/x": "the package mysqlclient is missing",
    "nonsense://x": "nonsense",
}


@pytest.mark.parametrize("uri", BAD_STORES)
def test_a_store_that_cannot_be_is_one_line_of_the_command(workspace, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UserError, match=BAD_STORES[uri]) as refused:
        main.callback()
    line = str(refused.value)
    assert "\n" not in line and len(line) < 400 and "secret" not in line
    assert not Path("away").exists()


def test_no_store_stops_a_stage_before_during_or_after_its_work(
    original, project, monkeypatch, capsys
):
    """Training, evaluation, suite and report say one line each."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me@127.0.0.1/x")
    stages = (train_run, lambda: sync_stage(RunSpec(settings(), RUN)), lambda: sync_report("smoke"))
    for stage in stages:
        stage()
        said = capsys.readouterr().err
        assert said.count("is not up to date (the package psycopg is missing here)") == 1
        assert said.count("MLflow") == 1
    assert run_pages("smoke") == {}


@rejects("sync.sync_all: except «FilesNotTaken→ZeroDivisionError»", "the other runs wait, too")
def test_files_for_a_bucket_that_has_no_client_here_hold_nothing_else_up(
    original, project, monkeypatch, capsys
):
    with chdir(original):  # the copy's database is not open yet
        before = everything()
    Path("mlflow.db").unlink()
    monkeypatch.setattr(tracking_sync, "is_local_uri", lambda place: False)
    failing = ModuleNotFoundError("No module named 'boto3'", name="boto3")
    monkeypatch.setattr(MlflowClient, "log_artifact", Mock(side_effect=failing))
    later = Journal(project / "sweeps/s/tracking.jsonl", experiment="smoke", run_name="z sweep")
    with pytest.raises(UserError, match=r"the package boto3 is missing here, for files in file"):
        main.callback()
    runs = {run.info.run_name: run for run in tracked_runs()[1]}
    assert "z sweep" in runs
    assert runs["z sweep"].data.tags["record"] == later.run.key
    MlflowClient(store_uri()).delete_run(runs["z sweep"].info.run_id)
    files = {tag: value for tag, value in before["tags"].items() if tag.startswith("file.")}
    assert everything() == before | {"tags": dict(before["tags"].items() - files.items())}
    sync_stage(RunSpec(settings(), RUN))
    assert capsys.readouterr().err.count("is not up to date (the package boto3 is missing") == 1


class Broken(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(500)

    do_POST = do_PATCH = do_GET

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("way", ["refuses", "hangs", "answers 500"])
def test_a_server_that_refuses_or_hangs_does_not_stop_training(workspace, monkeypatch, capsys, way):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with HTTPServer(("127.0.0.1", 0), Broken) as server:  # listens, and nobody serves
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever)
        if way == "answers 500":
            thread.start()
        elif way == "refuses":
            server.server_close()
        _, rows = train_run()
        if way == "answers 500":
            server.shutdown()
    said = capsys.readouterr().err
    assert said.count("is not up to date") == said.count("MLflow at") == 1
    assert len(rows) == 20


def test_a_finished_run_trained_again_is_another_mlflow_run(workspace):
    train_run()
    shutil.rmtree("resume")
    train_run()
    assert len(tracked_runs()[1]) == 2


def test_a_journal_that_cannot_be_read_is_passed_over(project, capsys):
    path = project / "checkpoints/smoke/foreign/tracking.jsonl"
    path.parent.mkdir()
    path.write_text('{"time": ')
    main.callback()
    said = capsys.readouterr()
    assert "passed over: checkpoints/smoke/foreign/tracking.jsonl: no journal" in said.err
    assert "1 runs are up to date" in said.out


@rejects('Journal.append: «b"\\n" +→» json.dumps(line).encode()«→ + b"\\n"»', "a line cut short")
def test_a_line_of_a_journal_that_a_kill_cut_short_is_left_out_and_the_next_is_not(tmp_path):
    journal = Journal(tmp_path / "e/name/journal.jsonl", experiment="e", run_name="name")
    journal.add_row({"step": 1, "tokens": 10, "ce_nats": 2.0})
    whole = journal.path.read_bytes()
    journal.add_row({"step": 2, "tokens": 20, "ce_nats": 1.0})
    journal.path.write_bytes(journal.path.read_bytes()[: len(whole) + 30])
    again = Journal(journal.path)
    again.add_row({"step": 2, "tokens": 20, "ce_nats": 3.0})
    points = [(p.key, p.step, p.value) for p in Journal(journal.path).run.points]
    assert [p for p in points if p[0] == "curve/ce_nats"] == [
        ("curve/ce_nats", 1, 2.0), ("curve/ce_nats", 2, 3.0)
    ]  # fmt: skip


def test_a_run_deleted_in_mlflow_is_made_anew_with_everything_by_its_stage_alone(project):
    before = everything()
    client, (run,) = tracked_runs()
    client.delete_run(run.info.run_id)
    main.callback()
    assert tracked_runs()[1] == []
    sync()
    # logged models are not deleted with their run, and have the figures of the new one as well
    assert everything() | {"models": before["models"]} == before
    assert tracked_runs()[1][0].info.run_id != run.info.run_id


@rejects("Known.lacks: «wanted not in→False and»", "a model's figures are not looked for")
def test_figures_of_a_model_that_a_killed_server_did_not_write_are_sent_again(project):
    """It writes the run's first, and those of the model in another transaction."""
    before = everything()
    with sqlite3.connect("mlflow.db") as database:
        database.execute("DELETE FROM logged_model_metrics")
    sync()
    assert everything() == before


def test_two_processes_at_once_send_everything_once(workspace, monkeypatch):
    """The thread of a training knows what it has sent; another process, meanwhile, sends more."""
    _, rows = train_run()
    store, run = Store(), on_disk()
    thread = Sync(store)
    first, rest = run.points[:30], run.points[30:]
    run.points = first
    thread(run)
    run.points = first + rest
    Sync(store)(run)
    thread(run)
    check_complete(rows)


def test_a_kill_while_the_store_is_made_leaves_none(tmp_path, monkeypatch):
    """MLflow makes its tables in many steps, and cannot go on from any but the last. The name may
    have options for SQLite's driver.
    """
    made = []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new.db?timeout=30")

    def add_column(*arguments, **keywords):
        made.append(arguments)
        if len(made) == 3:
            os._exit(9)
        return plain(*arguments, **keywords)

    plain = Operations.add_column
    with monkeypatch.context() as patch:
        patch.setattr(Operations, "add_column", add_column)
        process = multiprocessing.get_context("fork").Process(target=lambda: Store().client)
        process.start()
        process.join()
    assert process.exitcode == 9
    assert not (tmp_path / "new.db").exists() and (tmp_path / "new.db.partial").exists()
    assert Store().client.get_experiment("0").name == "Default"
    assert (tmp_path / "new.db").exists() and not list(tmp_path.glob("*.partial*"))
