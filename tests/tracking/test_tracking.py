"""The tracking store may be away, slow or dying: nothing is lost, nothing is sent twice."""

import multiprocessing
import os
import shutil
import sqlite3
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from alembic.operations import Operations

from pipelines.commands.tracking import main
from pipelines.host.errors import UserError
from pipelines.tracking.journal import Journal
from pipelines.tracking.store import Store
from pipelines.tracking.sync import Sync
from tests.support.mutants import rejects
from tests.support.training import tracked_runs, train_run
from tests.tracking.conftest import check_complete, everything, lost, on_disk, sync


def test_a_store_that_is_away_gets_everything_when_it_is_back(workspace, monkeypatch, capsys):
    with lost(monkeypatch, lambda n: True):
        _, rows = train_run()
    said = capsys.readouterr().err
    assert said.count("does not answer (no answer); going on") == 1
    assert "kept for MLflow; the run's next stage sends it" in said
    main.callback()
    assert "1 runs are up to date" in capsys.readouterr().out
    check_complete(rows)


def test_a_store_whose_database_fails_is_one_line(workspace, capsys):
    with sqlite3.connect("mlflow.db") as database:
        database.execute("DROP TABLE latest_metrics")
    train_run()
    said = capsys.readouterr().err
    assert said.count("does not answer ((sqlite3.OperationalError) no such table") == 1
    assert "Traceback" not in said


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
    assert said.count("does not answer") == 1 and "kept for MLflow" in said
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


@rejects(
    "store.Store.__init__: and «not →»self.database.parent",
    "a folder is made for a mistyped address",
)
def test_no_folder_is_made_for_a_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/no/mlflow.db")
    with pytest.raises(UserError, match=f"there is no folder {tmp_path}/no$"):
        Store()
    assert not [*tmp_path.iterdir()]


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
        process = multiprocessing.get_context("fork").Process(target=Store)
        process.start()
        process.join()
    assert process.exitcode == 9
    assert not (tmp_path / "new.db").exists() and (tmp_path / "new.db.partial").exists()
    assert Store().client.get_experiment("0").name == "Default"
    assert (tmp_path / "new.db").exists() and not list(tmp_path.glob("*.partial*"))
