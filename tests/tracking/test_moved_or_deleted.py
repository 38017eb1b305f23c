"""A copied or moved project has its artifacts where it is; what is deleted in MLflow comes back."""

import os
import shutil
from contextlib import chdir, nullcontext, suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.commands.tracking import main
from pipelines.host.files import alone
from pipelines.tracking import sync as tracking_sync
from pipelines.tracking.journal import Journal
from pipelines.tracking.store import Store, store_uri
from pipelines.tracking.sync import Sync, sync_report
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


def all_runs():
    """Every run of the experiment in MLflow by its name, as (id, tags, metrics)."""
    client = MlflowClient(store_uri())
    key = client.get_experiment_by_name("smoke").experiment_id
    runs = client.search_runs([key])
    return {run.info.run_name: (run.info.run_id, run.data.tags, run.data.metrics) for run in runs}


@rejects("sync.nest: known.id and old in names«→ and False»", "both trainings have the arm")
@rejects("sync.nest: key = «key or→None or» (", "found by resume/ alone")
@rejects("sync.nest: if kept.exists()«→ and False»", "a second parent")
def test_an_experiment_is_one_run_with_its_arms_in_which_the_trainings_are_nested(project):
    main.callback()
    main.callback()
    runs = all_runs()
    assert runs.keys() == {RUN, "smoke"}
    (parent, tags, arms), (child, nested, figures) = runs["smoke"], runs[RUN]
    assert nested["mlflow.parentRunId"] == parent and "arm" not in tags
    assert arms == {f"over_seeds/{RUN}_bits_per_token": figures["bound/bits_per_token"]}
    # another copy of the project sends a run of this name to the same store
    client = MlflowClient(store_uri())
    key = client.get_run(parent).info.experiment_id
    client.create_run(key, tags={"record": "another", "arm": RUN}, run_name="theirs")
    (theirs,) = client.search_runs([key], "tags.record = 'another'")
    client.update_run(theirs.info.run_id, name=RUN)
    # and this one trains it anew
    journal = project / "checkpoints/smoke" / RUN / "tracking.jsonl"
    journal.write_text(journal.read_text().replace(on_disk().key, "anew"))
    sync()
    sync_report("smoke")
    shutil.rmtree("resume")  # in a clone
    sync_report("smoke")
    (new,) = client.search_runs([key], "tags.record = 'anew'")
    assert len(client.search_runs([key], "attributes.run_name = 'smoke'")) == 1
    assert (new.data.tags["mlflow.parentRunId"], new.data.tags["arm"]) == (parent, RUN)
    assert client.get_run(child).info.run_name == f"{RUN} (replaced)"
    assert "arm" not in client.get_run(child).data.tags
    assert client.get_run(theirs.info.run_id).data.tags == theirs.data.tags | {
        "mlflow.runName": RUN
    }


@pytest.mark.parametrize("training", ["works", "was killed"])
def test_a_training_that_was_killed_outright_is_killed_in_mlflow(project, training):
    dead = Journal(
        project / "resume/smoke/free_k1_2/spec/tracking.jsonl",
        **{"experiment": "smoke", "run_name": "free_k1_2", "started": 1},
    )
    dead.add_row({"step": 1, "tokens": 10, "ce_nats": 2.0})
    at = dead.run.points[0].time
    with alone(Path("resume/smoke/free_k1_2")) if training == "works" else nullcontext():
        main.callback()
    name = "free_k1_2" if training == "works" else "free_k1_2 KILLED"
    ended = None if training == "works" else at
    assert name in all_runs()
    run = MlflowClient(store_uri()).get_run(all_runs()[name][0])
    assert (run.info.end_time, name.endswith(run.info.status)) == (ended, ended is not None)


def test_results_of_another_training_are_not_those_of_this_one(project):
    """Stage `train` leaves what was measured before until the next stage replaces it."""
    assert {model["name"] for model in on_disk().models}
    journal = project / "checkpoints/smoke/free_k1_8/tracking.jsonl"
    journal.write_text(journal.read_text().replace(on_disk().key, "another"))
    run = on_disk()
    assert (run.key, run.models, run.files) == ("another", [], [])
