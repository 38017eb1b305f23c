"""A trial of a sweep: its result, how it goes on, and its MLflow run."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.artifacts.curve import CurveRow
from pipelines.artifacts.results import Details
from pipelines.common import source_code
from pipelines.config.load import load_experiment
from pipelines.sweep import trial
from pipelines.sweep.result import DONE, FAILED, STOPPED, Folder, Result
from pipelines.sweep.trial import manifest_of, nest, settle, trial_hash
from pipelines.tracking.location import in_project, store_uri
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.run import Tracking, find_record, new_record
from pipelines.tracking.store import Store, send_waiting
from tests.support.training import train_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def smoke(workspace):
    """The smoke experiment as the only trial's own, in a workspace with its tokens."""
    experiment = load_experiment()
    experiment.runs = {"free_k1_8": experiment.runs["free_k1_8"]}
    return experiment


def test_a_result_holds_for_as_long_as_what_decides_it(smoke):
    folder, name = Folder("s", "free_k1_8"), "free_k1_8"
    hash = trial_hash(smoke, name)
    details = Details([], bound_bits=[1.0], document_tokens=[2])
    folder.write(Result(name, hash, DONE, details=details))
    assert folder.read(hash).details == details
    smoke.evaluation.iwae_samples += 1
    assert folder.read(trial_hash(smoke, name)) is None
    smoke.evaluation.iwae_samples -= 1
    smoke.runs[name].seed += 1
    assert folder.read(trial_hash(smoke, name)) is None


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A copy of the code, of which hashes are taken."""
    root = tmp_path / "program"
    for part in ("ftmodel", "pipelines"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", root)
    monkeypatch.setattr(source_code, "ROOT", root)
    source_code.code_version.cache_clear()
    yield root
    source_code.code_version.cache_clear()


@pytest.mark.parametrize(
    ("file", "decides"),
    [
        ("ftmodel/inference/bounds.py", True),
        ("ftmodel/model/mapper.py", True),
        ("pipelines/evaluate/bounds.py", True),
        ("pipelines/train/core/batches.py", True),
        ("pipelines/report/comparison.py", False),
        ("pipelines/sweep/report.py", False),
    ],
)
def test_a_trial_is_run_again_for_other_code_but_not_for_other_words(smoke, program, file, decides):
    path = program / file
    source = path.read_text()

    def hash_with(text):
        path.write_text(text)
        source_code.code_version.cache_clear()
        return trial_hash(smoke, "free_k1_8")

    before = hash_with(source)
    assert hash_with(source + "\n\n# a comment\n") == before
    assert hash_with(source.replace('"""', '"""Other words. ', 1)) == before
    assert (hash_with(source + "\n\nOTHER = 1\n") != before) == decides


def test_a_result_that_cannot_be_read_is_passed_over(smoke, capsys):
    folder = Folder("s", "free_k1_8")
    folder.write(Result("free_k1_8", "h", DONE))
    folder.result.write_text("{")
    assert folder.read("h") is None
    assert "not readable" in capsys.readouterr().out


def test_a_finished_result_of_another_version_is_set_aside_and_valid_again(smoke, capsys):
    folder = Folder("s", "t")
    folder.write(Result("t", "old", DONE, error="first"))
    folder.set_aside()
    assert "its result is kept in sweeps/s/trials/t/result.old.json" in capsys.readouterr().out
    assert not folder.result.exists()
    folder.write(Result("t", "new", FAILED))
    assert folder.read("new").status == FAILED
    assert folder.read("old").error == "first"
    folder.set_aside()  # nothing of value in a failure
    assert folder.read("new") is None
    assert [path.name for path in folder.path.iterdir()] == ["result.old.json"]


def test_rows_of_two_attempts_are_there_once(smoke):
    folder = Folder("s", "t")
    folder.path.mkdir(parents=True)
    for hash, step, ce in (("old", 3, 9.0), ("h", 1, 3.0), ("h", 2, 2.0), ("h", 2, 2.5)):
        folder.add_row(hash, CurveRow(step, 65 * step, ce, ce, 0.1, 9.0))
    with open(folder.rows, "a") as file:
        file.write('{"hash": "h", "st')
    assert [(r.step, r.ce_nats) for r in folder.read_rows("h")] == [(1, 3.0), (2, 2.5)]


def run_smoke_trial(experiment, report=lambda fraction, bound: None, parent="key"):
    return trial.run_trial(experiment, "free_k1_8", "s", parent, report)


def test_a_trial_reports_its_bound_but_not_when_it_is_trained(smoke):
    heard = []
    result = run_smoke_trial(smoke, lambda *row: heard.append(row))
    assert result.status == DONE
    assert [fraction for fraction, _ in heard] == pytest.approx([i / 20 for i in range(1, 20)])
    row = result.curve[3]
    assert heard[3][1] == pytest.approx(row.ce_nats / 0.6931471805599453 + row.kl_bits)
    stored = Folder("s", "free_k1_8").read(trial_hash(smoke, "free_k1_8"))
    assert repr(stored) == repr(result)  # NaN is not equal to itself
    assert result.evaluation.bits_per_token.filtering.mean == pytest.approx(
        sum(result.details.bound_bits) / sum(result.details.document_tokens), rel=1e-4
    )
    assert result.details.kl_per_bit == []  # bounds and sizes alone


def test_another_evaluation_trains_nothing_again(smoke):
    run_smoke_trial(smoke)
    smoke.evaluation.iwae_samples += 1
    heard = []
    assert run_smoke_trial(smoke, lambda *row: heard.append(row)).status == DONE
    assert heard == []


def test_a_trial_that_fails_is_a_result_and_tagged(smoke):
    smoke.models["target_small"].optim.lr = 1e30
    result = run_smoke_trial(smoke)
    assert result.status == FAILED
    assert "the gradient is not finite at step 2" in result.error
    (record,) = records("smoke", "free_k1_8")
    assert (record.status, record.parent) == ("FAILED", "key")
    assert record.tags["failure"] == result.error
    assert record.trained_steps == 1


def test_a_bug_is_a_result_too_and_its_traceback_in_the_log(smoke, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(trial, "measure", broken)
    result = run_smoke_trial(smoke)
    assert (result.status, result.error) == (FAILED, "ZeroDivisionError: a bug")
    assert "Traceback" in Folder("s", "free_k1_8").log.read_text()


def stop_at(share):
    def report(fraction, bound):
        if fraction >= share:
            raise SystemExit  # as Tune does to a trial that it stops

    return report


def test_a_trial_that_was_stopped_is_marked_so_and_not_failed(smoke):
    with pytest.raises(SystemExit):
        run_smoke_trial(smoke, stop_at(0.3))
    result = settle(smoke, "free_k1_8", "s", "key", "rule", "")
    assert (result.status, result.stopper, len(result.curve)) == (STOPPED, "rule", 6)
    (record,) = records("smoke", "free_k1_8")
    assert (record.status, record.tags["stopped_early"]) == ("KILLED", "yes")
    assert record.trained_steps == 6
    steps = [step for key, _, _, step, *_ in record.metrics if key == "train/ce_nats"]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_a_trial_whose_process_was_lost_has_failed(smoke):
    result = settle(smoke, "free_k1_8", "s", "key", "", "its process was lost")
    assert (result.status, result.error) == (FAILED, "its process was lost")


def test_a_trial_goes_on_and_tells_the_scheduler_of_its_earlier_rows(smoke):
    with pytest.raises(SystemExit):
        run_smoke_trial(smoke, stop_at(0.3))
    settle(smoke, "free_k1_8", "s", "key", "rule", "")
    heard = []
    assert run_smoke_trial(smoke, lambda *row: heard.append(row)).status == DONE
    assert heard[:6] == heard[6:12]  # no checkpoint yet: trained anew, to the same figures
    (record,) = records("smoke", "free_k1_8")
    steps = [step for key, _, _, step, *_ in record.metrics if key == "train/ce_nats"]
    assert steps == list(range(1, 21))
    assert (record.status, record.tags["stopped_early"]) == ("FINISHED", "")


# MLflow


def test_runs_are_nested_also_when_the_parent_is_sent_later(workspace):
    experiment = load_experiment()
    parent = Record(in_project(store_uri()), "smoke", "sweep", "", started=1)
    parent.tags = {"record": parent.key}
    nest(parent.key, manifest_of(experiment, "free_k1_8"), experiment)
    train_run()
    (child,) = records("smoke", "free_k1_8")
    assert child.parent == parent.key
    assert child.pending()
    tracking = Tracking("smoke")
    tracking.open(parent)
    tracking.finish()
    send_waiting(Store(store_uri()))
    (child,) = records("smoke", "free_k1_8")
    assert not child.pending()
    (parent,) = records("smoke", "sweep")
    run = MlflowClient(store_uri()).get_run(child.run_id)
    assert run.data.tags["mlflow.parentRunId"] == parent.run_id


def test_a_trained_trial_keeps_its_run_of_mlflow(smoke):
    train_run()
    manifest = manifest_of(smoke, "free_k1_8")
    nest("key", manifest, smoke)
    (record,) = records("smoke", "free_k1_8")
    assert (record.parent, record.status) == ("key", "FINISHED")
    assert find_record(store_uri(), manifest, smoke, go_on=True).key == record.key
    assert new_record(store_uri(), manifest, smoke).key != record.key
