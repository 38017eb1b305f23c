"""A trial of a sweep: its result, how it goes on, and its MLflow run."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from pipelines.artifacts.curve import CurveRow
from pipelines.artifacts.results import Details
from pipelines.config.load import load_experiment
from pipelines.sweep import trial
from pipelines.sweep.result import DONE, FAILED, STOPPED, Folder, Result
from pipelines.sweep.trial import manifest_of, nest, settle, trial_hash
from pipelines.tracking.journal import Journal, journals, read_journal
from pipelines.tracking.live import Tracking
from pipelines.tracking.store import Store
from pipelines.tracking.sync import sync_all
from pipelines.train.core import manifest
from tests.support.training import tracked_runs, train_run

NAME = "free_k1_8"


@pytest.fixture
def smoke(workspace):
    """The smoke experiment as the only trial's own, in a workspace with its tokens."""
    experiment = load_experiment()
    experiment.runs = {NAME: experiment.runs[NAME]}
    return experiment


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_result_holds_for_as_long_as_what_decides_it(smoke, monkeypatch):
    folder, hash = Folder("s", NAME), trial_hash(smoke, NAME)
    details = Details([], bound_bits=[1.0], document_tokens=[2])
    folder.write(Result(NAME, hash, DONE, details=details))
    assert folder.read(hash).details == details
    smoke.evaluation.iwae_samples += 1
    assert folder.read(trial_hash(smoke, NAME)) is None
    smoke.evaluation.iwae_samples -= 1
    for module in (trial, manifest):
        with monkeypatch.context() as patch:
            patch.setattr(module, "code_version", lambda stage: f"another of {stage}")
            assert folder.read(trial_hash(smoke, NAME)) is None
    assert folder.read(trial_hash(smoke, NAME)).details == details
    smoke.runs[NAME].seed += 1
    assert folder.read(trial_hash(smoke, NAME)) is None


def test_a_finished_result_of_another_version_is_set_aside_and_valid_again(in_folder, capsys):
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
    folder.result.write_text("{")
    assert folder.read("new") is None
    assert "not readable" in capsys.readouterr().out


def test_rows_of_two_attempts_are_there_once(in_folder):
    folder = Folder("s", "t")
    folder.path.mkdir(parents=True)
    for hash, step, ce in (("old", 3, 9.0), ("h", 1, 3.0), ("h", 2, 2.0), ("h", 2, 2.5)):
        folder.add_row(hash, CurveRow(step, 65 * step, ce, ce, 0.1, 9.0))
    with open(folder.rows, "a") as file:
        file.write('{"hash": "h", "st')
    assert [(r.step, r.ce_nats) for r in folder.read_rows("h")] == [(1, 3.0), (2, 2.5)]


def tracked_trials():
    """The trial's run as it is tracked: once, wherever its journal lies."""
    found = {run.key: run for run in map(read_journal, reversed([*journals("smoke")]))}
    return list(found.values())


def run_smoke_trial(experiment, share=1.0):
    """The result, and what was reported; it is stopped at this share of its budget."""
    heard = []

    def report(fraction, bound):
        heard.append((fraction, bound))
        if fraction >= share:
            raise SystemExit  # as Tune does to a trial that it stops

    return trial.run_trial(experiment, NAME, "s", "key", report), heard


def test_a_trial_reports_its_bound_but_not_when_it_is_trained_and_is_not_trained_again(smoke):
    result, heard = run_smoke_trial(smoke)
    assert result.status == DONE
    assert [fraction for fraction, _ in heard] == pytest.approx([i / 20 for i in range(1, 20)])
    row = result.curve[3]
    assert heard[3][1] == pytest.approx(row.ce_nats / 0.6931471805599453 + row.kl_bits)
    stored = Folder("s", NAME).read(trial_hash(smoke, NAME))
    assert repr(stored) == repr(result)  # NaN is not equal to itself
    assert result.evaluation.bits_per_token.filtering.mean == pytest.approx(
        sum(result.details.bound_bits) / sum(result.details.document_tokens), rel=1e-4
    )
    assert result.details.kl_per_bit == []  # bounds and sizes alone

    smoke.evaluation.iwae_samples += 1
    again, heard = run_smoke_trial(smoke)
    assert again.status == DONE and heard == []

    (tracked,) = tracked_trials()
    assert (tracked.parent, tracked.status) == ("key", "FINISHED")
    assert "`python -m pipelines.sweep sweep=smoke`" in tracked.tags["mlflow.note.content"]
    nest("another", manifest_of(smoke, NAME), smoke)
    assert [(t.key, t.parent) for t in tracked_trials()] == [(tracked.key, "another")]


def test_a_trial_that_fails_is_a_result_and_tagged(smoke):
    smoke.models["target_small"].optim.lr = 1e30
    result, _ = run_smoke_trial(smoke)
    assert result.status == FAILED
    assert "the gradient is not finite at step 2" in result.error
    (tracked,) = tracked_trials()
    assert (tracked.status, tracked.parent) == ("FAILED", "key")
    assert tracked.tags["failure"] == result.error
    assert tracked.step == 1


def test_a_bug_is_a_result_too_and_its_traceback_in_the_log(smoke, monkeypatch):
    monkeypatch.setattr(trial, "fit", Mock(side_effect=ZeroDivisionError("a bug")))
    result, _ = run_smoke_trial(smoke)
    assert (result.status, result.error) == (FAILED, "ZeroDivisionError: a bug")
    assert "Traceback" in Folder("s", NAME).log.read_text()


def steps(tracked):
    return [point.step for point in tracked.points if point.key == "train/ce_nats"]


def test_a_trial_that_was_stopped_is_no_failure_and_goes_on_with_its_earlier_rows(smoke):
    with pytest.raises(SystemExit):
        run_smoke_trial(smoke, 0.3)
    result = settle(smoke, NAME, "s", "key", "rule", "")
    assert (result.status, result.stopper, len(result.curve)) == (STOPPED, "rule", 6)
    (tracked,) = tracked_trials()
    assert (tracked.status, tracked.tags["stopped_early"]) == ("KILLED", "yes")
    assert steps(tracked) == [1, 2, 3, 4, 5, 6]
    result, heard = run_smoke_trial(smoke)
    assert result.status == DONE
    assert heard[:6] == heard[6:12]  # no checkpoint yet: trained anew, to the same figures
    (tracked,) = tracked_trials()
    assert steps(tracked) == list(range(1, 21))
    assert (tracked.status, tracked.tags["stopped_early"]) == ("FINISHED", "")


def test_a_trial_whose_process_was_lost_has_failed(smoke):
    result = settle(smoke, NAME, "s", "key", "", "its process was lost")
    assert (result.status, result.error) == (FAILED, "its process was lost")


def test_runs_are_nested_also_when_the_parent_is_sent_later(workspace):
    experiment = load_experiment()
    parent = Journal(Path("sweeps/s/tracking.jsonl"), experiment="smoke", run_name="sweep")
    nest(parent.run.key, manifest_of(experiment, NAME), experiment)
    train_run()
    _, (child,) = tracked_runs()
    assert "mlflow.parentRunId" not in child.data.tags
    Tracking(parent).finish()
    sync_all(Store(), "smoke")
    runs = {run.info.run_name: run for run in tracked_runs()[1]}
    assert len(runs) == 2
    assert runs[NAME].data.tags["mlflow.parentRunId"] == runs["sweep"].info.run_id
