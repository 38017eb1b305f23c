"""What is deleted in MLflow, or with its database, comes back."""

import os
import shutil
from contextlib import chdir

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.tracking import rebuild
from pipelines.tracking.location import store_uri
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.run import Tracking
from tests.support.mutants import rejects
from tests.support.training import tracked_runs
from tests.tracking.conftest import everything, manifest, settings


def log_figure():
    tracking = Tracking("smoke")
    tracking.start(manifest(), settings(), go_on=True)
    tracking.log_figures("late", {"figure": 1.0}, step=1)
    tracking.finish()


@rejects(
    'if experiment.lifecycle_stage != "active":', "if False:", "a deleted experiment stays deleted"
)
def test_an_experiment_deleted_while_a_run_goes_on_is_restored_by_the_next_try(project, capsys):
    tracking = Tracking("smoke")
    tracking.start(manifest(), settings(), go_on=True)
    tracking.finish()
    client, (run,) = tracked_runs()
    client.delete_experiment(run.info.experiment_id)
    tracking.log_figures("late", {"figure": 1.0}, step=1)
    with pytest.raises(MlflowException):
        tracking.store.send(tracking.record)  # it has seen the run
    log_figure()
    said = capsys.readouterr().err
    assert said.count("MLflow experiment smoke was deleted; restored, with the runs it had") == 1
    assert "does not answer" not in said
    _, (same,) = tracked_runs()
    assert same.info.run_id == run.info.run_id and same.data.metrics["late/figure"] == 1.0
    assert client.get_experiment_by_name("smoke").lifecycle_stage == "active"


@rejects(
    "if (p[0], p[1], p[3]) not in points",
    "if True",
    "a rebuilt store gets the curve a second time",
    case="lost",
)
@pytest.mark.parametrize("outbox", ["there", "lost"])
def test_a_deleted_database_is_rebuilt_twice_as_once(original, project, capsys, outbox):
    with chdir(original):  # the copy's database is not open yet
        before = everything("system/")  # which no file has
    for lost in ("mlflow.db", "mlflow.db.lock"):
        (project / lost).unlink(missing_ok=True)
    shutil.rmtree("mlartifacts")
    if outbox == "lost":
        shutil.rmtree("tracking")
    rebuild.main()
    assert "1 runs made anew" in capsys.readouterr().out
    after = everything("system/")
    if outbox == "lost":
        before["params"].pop("precision")  # it is not in the card
        client, (run,) = tracked_runs()
        points = client.get_metric_history(run.info.run_id, "train/ce_nats")
        times = [point.timestamp for point in points]
        assert times == sorted(times)
        assert run.info.start_time <= times[0] and times[-1] <= run.info.end_time + 1
    assert after == before
    rebuild.main()
    assert "0 runs made anew" in capsys.readouterr().out
    assert everything("system/") == before
    shutil.rmtree("tracking")  # what knows what was sent
    for path in (*project.rglob("last.ckpt"), *project.rglob("*.json")):
        os.utime(path, (1e9, 1e9))  # as after `dvc checkout`: times are made from these
    rebuild.main()
    assert "0 runs made anew" in capsys.readouterr().out
    assert everything("system/") == before


def test_a_run_deleted_in_mlflow_stays_deleted(project, capsys):
    client, (run,) = tracked_runs()
    client.delete_run(run.info.run_id)
    rebuild.main()
    assert "0 runs made anew" in capsys.readouterr().out
    assert tracked_runs()[1] == []


def test_a_rebuilt_run_that_was_cut_short_is_completed(original, project, monkeypatch):
    with chdir(original):
        before = everything("system/")
    shutil.rmtree("tracking")
    (project / "mlflow.db").unlink()
    note, count = Record.note, 0

    def die(self, **sent):
        nonlocal count
        count += 1
        if count == 6:
            raise MlflowException("no answer")
        note(self, **sent)

    with monkeypatch.context() as patch:
        patch.setattr(Record, "note", die)
        with pytest.raises(Exception, match="no answer"):
            rebuild.main()
    rebuild.main()
    after = everything("system/")
    before["params"].pop("precision")
    assert after == before
    assert not any(record.pending() for record in records())


def test_a_checkpoint_that_is_none_is_passed_over(project, capsys):
    path = project / "checkpoints/smoke/foreign/last.ckpt"
    path.parent.mkdir()
    path.write_bytes(b"foreign")
    rebuild.main()
    assert f"{path.relative_to(project)}: passed over" in capsys.readouterr().err
    assert MlflowClient(store_uri()).get_experiment_by_name("smoke")
