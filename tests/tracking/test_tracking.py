"""The tracking store may be away, slow or dying: nothing is lost, nothing is sent twice."""

import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict
from threading import Thread

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.artifacts.checkpoint import Manifest, load_model
from pipelines.artifacts.paths import checkpoint_path
from pipelines.common.atomic_files import ROOT
from pipelines.config.load import load_experiment
from pipelines.tracking.location import store_uri
from pipelines.tracking.outbox import records
from pipelines.tracking.run import Tracking, main, new_record
from pipelines.tracking.store import Store, send_waiting
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs, train_run

CALLS = ("create_run", "log_batch", "set_terminated", "search_runs")


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


def check_complete(rows):
    """One MLflow run, finished, that has each row of the curve once."""
    client, (run,) = tracked_runs()
    assert run.info.status == "FINISHED"
    assert run.data.params["kappa_bits"] == "0.125"
    points = client.get_metric_history(run.info.run_id, "train/ce_nats")
    assert [(p.step, p.value) for p in points] == [
        (int(row["step"]), float(row["ce_nats"])) for row in rows
    ]
    assert not any(record.pending() for record in records())


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


@pytest.mark.parametrize(
    "which",
    [
        lambda n: n in (1, 3),  # the run is created, and nobody hears of it
        lambda n: n % 3 == 0,
        lambda n: n % 5 == 0,
        lambda n: n % 7 == 0,
    ],
)
def test_calls_whose_answer_is_lost_are_neither_lost_nor_made_twice(workspace, monkeypatch, which):
    with lost(monkeypatch, which):
        _, rows = train_run()
        for _ in range(30):
            try:
                send_waiting(Store(store_uri()))
            except MlflowException:
                continue
            break
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


def test_a_record_that_cannot_be_read_is_passed_over(workspace, capsys):
    train_run()
    (path,) = (workspace / "tracking" / "smoke").glob(f"{RUN}-*/record.json")
    path.write_text("{")
    assert list(records()) == []
    assert "passed over" in capsys.readouterr().out


def test_evaluation_adds_to_the_run_of_the_card_or_makes_one_where_the_store_has_none(
    workspace, monkeypatch
):
    """On another machine, or with another store, the record of the training is not there."""
    train_run()
    shutil.rmtree("tracking")
    manifest = load_model(checkpoint_path("smoke", RUN))[1]
    for uri in (store_uri(), f"sqlite:///{workspace}/other.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        evaluation = Tracking("smoke")
        evaluation.start(manifest, load_experiment(), go_on=True)
        evaluation.log_figures("eval", {"bound": 1.5}, step=20)
        evaluation.finish()
        client = MlflowClient(uri)
        found = client.get_experiment_by_name("smoke")
        (run,) = client.search_runs([found.experiment_id])
        assert run.data.metrics["eval/bound"] == 1.5
        assert run.data.params["kappa_bits"] == "0.125"
        assert run.info.status == "FINISHED"


def test_a_run_deleted_in_mlflow_is_made_anew_with_everything(workspace):
    _, rows = train_run()
    client, (run,) = tracked_runs()
    client.delete_run(run.info.run_id)
    (record,) = records()
    Store(store_uri()).send(record)
    check_complete(rows)
    assert tracked_runs()[1][0].info.run_id != run.info.run_id


KILLED = """
import os
from alembic.operations import Operations
from pipelines.tracking.location import store_uri
from pipelines.tracking.store import Store

made = []
def add_column(*arguments, **keywords):
    made.append(arguments)
    if len(made) == 3:
        os._exit(9)
    return plain(*arguments, **keywords)

plain, Operations.add_column = Operations.add_column, add_column
Store(store_uri())
"""


def test_a_new_local_store_may_be_named_with_options(tmp_path):
    """As of SQLite's driver: how long it waits for a lock."""
    store = Store(f"sqlite:///{tmp_path}/new.db?timeout=30")
    assert store.client.get_experiment("0").name == "Default"
    assert (tmp_path / "new.db").exists()


def test_a_kill_while_the_store_is_made_leaves_none(tmp_path, monkeypatch):
    """MLflow makes its tables in many steps, and cannot go on from any but the last."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True)
    assert done.returncode == 9, done.stderr
    assert not (tmp_path / "mlflow.db").exists()
    assert Store(store_uri()).client.get_experiment("0").name == "Default"
    assert not list(tmp_path.glob("*.partial*"))


@rejects(
    "tracking/describe.py",
    '"baseline" if kappa_bits is None',
    '"baseline" if not kappa_bits',
    "a threshold of 0 tagged as a baseline",
)
@pytest.mark.parametrize(
    ("kappa", "arm"), [(None, "baseline"), (0.0, "free transformer"), (0.5, "free transformer")]
)
def test_a_threshold_of_0_is_not_tagged_as_a_baseline(kappa, arm):
    experiment = load_experiment(ROOT / "params.yaml")
    name, run = next(iter(experiment.runs.items()))
    run.kappa_bits = kappa
    architecture = asdict(experiment.model_config(run))
    manifest = Manifest("e", name, asdict(run), architecture, 11, data_hash="", spec_hash="")
    assert new_record("sqlite://", manifest, experiment).tags["arm"] == arm
