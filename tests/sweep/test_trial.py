"""A trial of a sweep: what it reports, how it goes on, and its MLflow run."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pipelines.artifacts.results import Estimate
from pipelines.artifacts.run_results import read_run
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.host.errors import UserError
from pipelines.sweep import trial
from pipelines.sweep.plan import BOUND, DONE, ERROR, FRACTION, TRAINING_BOUND, TrialOutcome
from pipelines.sweep.trial import close_parent, end_trial, is_trained, nest, open_parent
from pipelines.tracking.journal import Journal, journals, read_journal
from pipelines.tracking.live import Tracking
from pipelines.train.core.segments import make_manifest
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import composed_by_hydra
from tests.support.training import tracked_runs, train_run

NAME, LOG = "free_k1_8", Path("sweeps/s/log.txt")


@pytest.fixture
def smoke(workspace):
    """The smoke experiment as the only trial's own, in a workspace with its tokens."""
    experiment = load_experiment()
    experiment.runs = {NAME: experiment.runs[NAME]}
    return experiment


@pytest.fixture
def heard(monkeypatch):
    """What has been reported to Tune."""
    reports = []
    monkeypatch.setattr(trial.tune, "report", reports.append)
    return reports


def tracked_trials():
    """The trial's run as it is tracked: once, wherever its journal lies."""
    found = {run.key: run for run in map(read_journal, reversed([*journals("smoke")]))}
    return list(found.values())


def nest_in(parent, experiment, trained):
    spec = RunSpec(experiment, NAME)
    nest(spec, make_manifest(spec, spec.shards()), trained, parent)


@arrives("compute", "workers")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_of_several_workers_is_trained_and_measured_on_ray(monkeypatch, workers):
    called = Mock()
    steps = ("make_manifest", "nest", "fit", "fit_on_ray", "publish", "measure", "on_a_worker")
    for name in ("Rows", *steps):
        monkeypatch.setattr(trial, name, getattr(called, name))
    monkeypatch.setattr(trial, "is_trained", lambda *_: False)
    monkeypatch.setattr(RunSpec, "shards", Mock())
    experiment = composed_by_hydra("experiment=smoke", f"compute.workers={workers}")
    trial.train_and_measure(RunSpec(experiment, NAME), "key")
    here, on_ray = (called.fit, called.measure), (called.fit_on_ray, called.on_a_worker)
    assert [each.called for each in here] == [workers == 1] * 2
    assert [each.called for each in on_ray] == [workers == 2] * 2


def run_smoke_trial(experiment, command="first"):
    trial.run_trial(RunSpec(experiment, NAME), "key", LOG, command)


@rejects("trial.reported: row.«bound_bits→ce_nats»", "ASHA by the loss alone")
def test_a_trial_reports_its_bounds_and_is_not_trained_again(smoke, heard):
    run_smoke_trial(smoke)
    *rows, last = heard
    assert [row[FRACTION] for row in rows] == pytest.approx([i / 20 for i in range(1, 20)])
    run = read_run(RunSpec(smoke, NAME))
    row = run.curve[3]
    assert rows[3][TRAINING_BOUND] == pytest.approx(row.ce_nats / 0.6931471805599453 + row.kl_bits)
    bound = run.evaluation.bits_per_token.filtering
    assert (last[FRACTION], last[BOUND], last[ERROR]) == (1.0, bound.mean, bound.se)
    assert last[TRAINING_BOUND] == run.curve[-1].bound_bits

    spec = RunSpec(smoke, NAME)
    manifest = make_manifest(spec, spec.shards())
    assert is_trained(spec, manifest)
    assert not is_trained(spec, replace(manifest, spec_hash="of other settings"))
    smoke.evaluation.iwae_samples += 1
    run_smoke_trial(smoke)
    assert [row[FRACTION] for row in heard[len(rows) + 1 :]] == [1.0]

    (tracked,) = tracked_trials()
    assert (tracked.parent, tracked.status) == ("key", "FINISHED")
    assert "`ftlab sweep sweep=smoke`" in tracked.tags["mlflow.note.content"]
    nest_in("another", smoke, trained=True)
    assert [(t.key, t.parent) for t in tracked_trials()] == [(tracked.key, "another")]


def test_a_trial_of_several_workers_reports_the_same_and_is_evaluated_on_a_worker(
    smoke, heard, monkeypatch
):
    smoke.compute.workers = 2
    callback, worker = trial.TuneReportCallback, Mock(side_effect=lambda _, task: task())
    monkeypatch.setattr(callback, "__init__", lambda _: None)
    monkeypatch.setattr(callback, "after_report", lambda _, __, rows, ___: heard.extend(rows))

    def fit_here(spec, manifest, callbacks):
        (rows,), other = callbacks, {"step": -1}  # what the second worker reports
        trial.fit(spec, manifest, watch=lambda row: rows.after_report(None, [row, other], None))

    monkeypatch.setattr(trial, "fit_on_ray", fit_here)
    monkeypatch.setattr(trial, "on_a_worker", worker)
    run_smoke_trial(smoke)
    assert [row[FRACTION] for row in heard] == pytest.approx([i / 20 for i in range(1, 21)])
    assert BOUND in heard[-1]
    worker.assert_called_once()


def test_a_trial_that_fails_says_why_in_its_log_and_is_trained_again_by_another_command_alone(
    smoke, heard
):
    smoke.models["target_small"].optim.lr = 1e30
    for command, trained in (("first", True), ("first", False), ("second", True)):
        heard.clear()
        with pytest.raises(UserError, match="the gradient is not finite at step 2"):
            run_smoke_trial(smoke, command)
        assert bool(heard) == trained
        assert all(BOUND not in each for each in heard)
    assert LOG.read_text().count("Traceback") == 2
    (tracked,) = tracked_trials()
    assert (tracked.status, tracked.parent, tracked.step) == ("FAILED", "key", 1)


def steps(tracked):
    return [point.step for point in tracked.points if point.key == "curve/ce_nats"]


def test_a_trial_that_was_stopped_is_no_failure_and_may_go_on(smoke, heard, monkeypatch):
    def report(figures):
        heard.append(figures)
        if figures[FRACTION] >= 0.3:
            raise SystemExit  # as Tune does to a trial that it stops

    with monkeypatch.context() as patch:
        patch.setattr(trial.tune, "report", report)
        with pytest.raises(SystemExit):
            run_smoke_trial(smoke)
    end_trial(RunSpec(smoke, NAME), "key", failed=True)  # has ended
    (tracked,) = tracked_trials()
    assert (tracked.status, steps(tracked)) == ("KILLED", [1, 2, 3, 4, 5, 6])
    run_smoke_trial(smoke)
    assert heard[:6] == heard[6:12]  # no checkpoint yet: trained anew, to the same figures
    (tracked,) = tracked_trials()
    assert (tracked.status, steps(tracked)) == ("FINISHED", [*range(1, 21)])


@pytest.mark.parametrize(("failed", "status"), [(True, "FAILED"), (False, "KILLED")])
def test_a_trial_whose_process_was_lost_is_nested_and_ended(smoke, failed, status):
    end_trial(RunSpec(smoke, NAME), "key", failed)
    (tracked,) = tracked_trials()
    assert (tracked.status, tracked.parent) == (status, "key")
    (path,) = journals("smoke")
    Journal(path).append(status="FINISHED")
    end_trial(RunSpec(smoke, NAME), "key", failed)  # trained, and then lost
    (again,) = tracked_trials()
    assert (again.status, again.key) == ("FINISHED", tracked.key)


def test_runs_are_nested_also_when_the_parent_is_sent_later(workspace, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sweep", "sweep=s", "samples=2"])
    settings = {NAME: {"optim.lr": 0.002}}
    plan = SimpleNamespace(name="s", experiment="smoke", settings=settings)
    with monkeypatch.context() as patch:
        patch.setattr(trial, "Tracking", later := Mock())
        open_parent(plan)
        open_parent(plan)  # the same command again
    (first, note), (parent, _) = [call.args for call in later.call_args_list]
    assert parent.run.key == first.run.key
    nest_in(parent.run.key, load_experiment(), trained=False)
    train_run()
    _, (child,) = tracked_runs()
    assert "mlflow.parentRunId" not in child.data.tags
    best = TrialOutcome(NAME, DONE, 1.0, Estimate(0.5, 0.1))
    close_parent(Tracking(parent, note), plan, best, Path("s_best.yaml"))
    runs = {run.info.run_name: run for run in tracked_runs()[1]}
    assert len(runs) == 2
    assert runs[NAME].data.tags["mlflow.parentRunId"] == runs["sweep"].info.run_id
    assert runs["sweep"].info.status == "FINISHED"
    tags = runs["sweep"].data.tags
    assert "made by `ftlab sweep sweep=s samples=2`" in tags["mlflow.note.content"]
    assert tags["sweep"] == "s" and "mlflow.source.git.commit" in tags
    assert (tags["best.trial"], tags["best.bound"]) == (NAME, str(best.bound))
    assert (tags["best.optim.lr"], tags["experiment"]) == ("0.002", "s_best.yaml")
