"""Sweeps on Ray Tune: when trials are stopped, what they need and report, and a whole sweep."""

import os
import re
import signal
import sys
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import psutil
import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.tune.schedulers import FIFOScheduler

from pipelines.artifacts.run_results import read_run
from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster import connection as cluster
from pipelines.config.load import load_experiment
from pipelines.config.schema import Compute
from pipelines.host.dvc import pipeline_alone
from pipelines.host.errors import UserError
from pipelines.host.files import resume_folder
from pipelines.sweep import tune as sweep
from pipelines.sweep.plan import BOUND, ERROR, FRACTION, TRAINING_BOUND, make_scheduler
from pipelines.tracking.journal import Journal, journals, read_journal
from pipelines.train.core.segments import make_manifest
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.project_copy import Project
from tests.support.sweeps import plan_of
from tests.support.training import tracked_runs, train_run

ASHA = {"grace_period": 0.2, "reduction_factor": 2}


def decision(scheduler, name, fraction, bound):
    candidate = SimpleNamespace(trial_id=name)
    scheduler.on_trial_add(None, candidate)
    heard = {FRACTION: fraction, TRAINING_BOUND: bound}
    return scheduler.on_trial_result(None, candidate, heard)


def test_asha_stops_a_trial_that_is_worse_at_a_rung_and_without_it_nothing_is_stopped(tmp_path):
    assert type(make_scheduler(None, tmp_path)) is FIFOScheduler
    assert type(make_scheduler({}, tmp_path)) is not FIFOScheduler, "ASHA with its defaults"
    scheduler = make_scheduler(ASHA, tmp_path)
    assert decision(scheduler, "first", 0.2, 1.0) == "CONTINUE"
    assert decision(scheduler, "too early", 0.19, 9.0) == "CONTINUE"
    assert decision(scheduler, "worse", 0.2, 2.0) == "STOP"
    assert decision(scheduler, "better", 0.2, 0.5) == "CONTINUE"
    assert decision(scheduler, "at the end", 1.0, 0.4) == "CONTINUE"


@rejects(
    "RememberedAsha.__init__: «self.restore→»(", "ASHA forgets the trials of an earlier command"
)
def test_asha_remembers_trials_of_an_earlier_command(tmp_path):
    decision(make_scheduler(ASHA, tmp_path), "first", 0.2, 1.0)
    assert decision(make_scheduler(ASHA, tmp_path), "worse", 0.2, 2.0) == "STOP"
    (tmp_path / "new").mkdir()
    assert decision(make_scheduler(ASHA, tmp_path / "new"), "worse", 0.2, 2.0) == "CONTINUE"


def test_what_decides_the_trials_decides_where_their_state_is(monkeypatch):
    monkeypatch.setattr(RunSpec, "shards", Mock())
    monkeypatch.setattr(sweep, "make_manifest", lambda spec, _: Mock(spec_hash=f"{spec.run}"))

    def folder(*overrides, code="now"):
        monkeypatch.setattr(sweep, "code_version", lambda stage: code)
        return sweep.state_folder(plan_of(*overrides))

    changes = ["asha={}", "evaluation.iwae_samples=5", "space.run.seed.grid_search=[0,2]"]
    assert re.fullmatch("sweeps/smoke/[0-9a-f]{16}", str(folder()))
    others = [folder(change) for change in changes] + [folder(code="another")]
    assert len({folder(), *others}) == 5
    assert folder() == folder("concurrent=1", "compute.max_failures=7", "best=9")


@pytest.fixture
def machine(monkeypatch):
    """Lets Ray say that its one node has this."""

    def has(resources, address=""):
        node = {"Alive": True, "NodeID": "here", "Resources": resources}
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setattr(cluster, "PATIENCE", 0.0)
        monkeypatch.setattr(cluster.ray, "nodes", lambda: [node])
        monkeypatch.setattr(cluster.ray, "cluster_resources", lambda: resources)
        monkeypatch.setattr(cluster, "check_shared", lambda folder: None)

    return has


@arrives("compute", "cpus_per_worker gpus_per_worker workers")
@pytest.mark.parametrize(
    ("compute", "has", "takes", "at_once"),
    [
        (Compute(cpus_per_worker=3), {"CPU": 8.0}, {"CPU": 3.0}, 2),
        (Compute(), {"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 1.0}, 2),
        (Compute(gpus_per_worker=0.25), {"CPU": 16.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 0.25}, 8),
        (Compute(gpus_per_worker=0), {"CPU": 3.0, "GPU": 1.0}, {"CPU": 1.0}, 3),
        (Compute(workers=2), {"CPU": 5.0}, {"memory": 1e6}, 2),
    ],
)
def test_what_a_trial_takes_and_how_many_have_room(machine, compute, has, takes, at_once):
    machine(has)
    assert sweep.resources(compute).required_resources == takes
    assert sweep.concurrent_trials(compute) == at_once
    machine(has, "10.0.0.1:6379")  # where others may be at work, too
    assert sweep.concurrent_trials(compute) == (None if compute.workers == 1 else at_once)


@pytest.mark.parametrize(
    ("address", "compute", "words"),
    [
        ("", Compute(cpus_per_worker=4), "1 of 4 CPUs and 0 GPUs each .* room for 0: 2 CPUs"),
        ("10.0.0.1:6379", Compute(workers=4), "4 of 1 CPUs and 0 GPUs each .* room for 2: 2 CPUs"),
    ],
)
def test_a_trial_that_there_is_no_room_for_is_not_waited_for(machine, address, compute, words):
    machine({"CPU": 2.0}, address)
    with pytest.raises(UserError, match=words):
        sweep.concurrent_trials(compute)


@arrives("sweep", "asha concurrent")
@arrives("compute", "max_failures")
@pytest.mark.parametrize(("concurrent", "expected"), [(3, 3), ("null", 5)])
def test_tune_is_told_what_the_sweep_says(machine, monkeypatch, tmp_path, concurrent, expected):
    """As many trials at once as there is room for, 5, where the sweep leaves it open."""
    asked = ("asha={reduction_factor: 3}", "compute.max_failures=7", f"concurrent={concurrent}")
    plan, folder = plan_of(*asked), tmp_path / "smoke" / "state"
    made, run = Mock(), Mock()
    made.can_restore.side_effect = [False, True]
    monkeypatch.setattr(sweep.tune, "Tuner", made)
    monkeypatch.setattr(sweep.tune, "with_resources", lambda train, _: train)
    monkeypatch.setattr(sweep, "connect", Mock())
    monkeypatch.setattr(sweep, "run_trial", run)
    machine({"CPU": 5.0})
    assert sweep.run_trials(plan, folder, "parent") is made.return_value.fit.return_value
    made.restore.assert_not_called()
    ((train,), told) = made.call_args
    train({"trial": "baseline_seed_1"})
    log = folder / "baseline_seed_1/log.txt"
    assert run.call_args.args == (plan.trials["baseline_seed_1"], "parent", log, "baseline")
    assert told["tune_config"].max_concurrent_trials == expected
    assert told["tune_config"].scheduler._reduction_factor == 3
    assert told["run_config"].failure_config.max_failures == 7
    restored = sweep.run_trials(plan, folder, "parent")
    assert restored is made.restore.return_value.fit.return_value
    assert made.restore.call_args.kwargs["restart_errored"]


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """Lets Tune say that trials have ended like this, by their names."""
    monkeypatch.chdir(tmp_path)
    for name in ("open_parent", "sync_all", "end_lost_trials"):
        monkeypatch.setattr(sweep, name, MagicMock())

    def have(**ends):
        results = [
            SimpleNamespace(config={"trial": name}, metrics=metrics, error=error)
            for name, (metrics, error) in ends.items()
        ]
        monkeypatch.setattr(sweep, "run_trials", lambda *_: results)

    return have


def test_a_sweep_of_which_no_trial_is_done_is_an_error(ended, tmp_path, capsys, monkeypatch):
    plan = plan_of()
    name, other, *_ = plan.trials
    ended(**{name: ({FRACTION: 0.5}, None), other: ({}, UserError(f"{other}: it burns"))})
    with pytest.raises(UserError, match=r"^no trial is done: .*it burns$"):
        sweep.sweep_once(plan, tmp_path)
    assert re.search(
        rf"\n{other} +at 0% of its budget failed: .*it burns\n", capsys.readouterr().out
    )
    sweep.open_parent.return_value.finish.assert_called_once_with("FAILED")
    monkeypatch.setattr(sweep, "run_trials", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep_once(plan, tmp_path)
    sweep.open_parent.return_value.finish.assert_called_with("KILLED")


def test_the_trials_are_listed_with_a_warning_and_how_to_go_on(
    ended, tmp_path, capsys, monkeypatch
):
    path = Path("conf/experiment/smoke_best.yaml")
    monkeypatch.setattr(sweep, "write_best", lambda plan, arms: path)
    plan = plan_of()
    lost, worse, best, stopped = plan.trials
    done = {
        name: ({FRACTION: 1.0, BOUND: bound, ERROR: 0.1}, None)
        for name, bound in ((worse, 0.6), (best, 0.5))
    }
    ended(**{lost: ({}, ActorDiedError()), stopped: ({FRACTION: 0.5}, None)}, **done)
    sweep.sweep_once(plan, tmp_path)
    said = capsys.readouterr().out
    order = [line.split()[0] for line in said.splitlines() if line.startswith(tuple(plan.trials))]
    assert order == [best, worse, lost, stopped], "lowest bound first"
    assert re.search(rf"\n{lost} +at 0% of its budget failed: ActorDiedError: The actor died", said)
    assert re.search(rf"\n{stopped} +at 50% of its budget stopped early\n", said)
    assert "The best of 4 trials looks better than it is" in said
    assert said.endswith("\n    make repro EXPERIMENT=smoke_best\n")
    tags = sweep.open_parent.return_value.journal.append.call_args.kwargs["tags"]
    assert (tags["best.trial"], tags["best.bound"]) == (best, "0.5000 ± 0.1000")
    assert tags["best.optim.lr"] == str(plan.settings[best]["optim.lr"])


def test_a_trials_own_error_is_named_without_its_traceback():
    error = RayTaskError("train", "Traceback", UserError("lr: too\nhigh"))
    assert sweep.reason(error) == "lr: too high"


@pytest.mark.parametrize("code", [0, 1])
def test_the_command_sweeps_when_dvc_has_made_the_tokens(tmp_path, monkeypatch, code):
    dvc, made = Mock(return_value=Mock(returncode=code)), Mock()
    made.compose_plan.return_value = plan_of(), "the composed experiment"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep.subprocess, "run", dvc)
    monkeypatch.setattr(sweep, "check_ray", Mock())
    for name in ("compose_plan", "write_params", "state_folder", "sweep_once"):
        monkeypatch.setattr(sweep, name, getattr(made, name))
    monkeypatch.setattr("pipelines.host.dvc.sleep", lambda _: 1 / 0)
    with pipeline_alone(), pytest.raises(ZeroDivisionError):  # it waits for its turn
        sweep.main(["samples=3", "sweep=smoke"])
    assert not made.write_params.called
    made.reset_mock()
    with pytest.raises(UserError, match="dvc repro tokenize@target") if code else nullcontext():
        sweep.main(["samples=3", "sweep=smoke"])
    made.compose_plan.assert_called_once_with("smoke", ["samples=3"])
    made.write_params.assert_called_once_with("the composed experiment")
    assert dvc.call_args.args[0][-2:] == ["repro", "tokenize@target"]
    assert made.sweep_once.called == (code == 0)
    assert (tmp_path / "sweeps/.smoke.lock").exists() == (code == 0)


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
    monkeypatch.setattr(sweep.tune, "report", reports.append)
    return reports


def tracked_trials():
    """The trial's run as it is tracked: once, wherever its journal lies."""
    found = {run.key: run for run in map(read_journal, reversed([*journals("smoke")]))}
    return list(found.values())


def run_smoke_trial(experiment):
    sweep.run_trial(RunSpec(experiment, NAME), "key", LOG)


@rejects("tune.reported: row.«bound_bits→ce_nats»", "ASHA by the loss alone")
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
    smoke.evaluation.iwae_samples += 1
    run_smoke_trial(smoke)
    assert [row[FRACTION] for row in heard[len(rows) + 1 :]] == [1.0]

    (tracked,) = tracked_trials()
    assert (tracked.parent, tracked.status) == ("key", "FINISHED")
    assert "`ftlab sweep sweep=smoke`" in tracked.tags["mlflow.note.content"]
    spec = RunSpec(smoke, NAME)
    sweep.nest(spec, make_manifest(spec, spec.shards()), trained=True, parent="another")
    assert [(t.key, t.parent) for t in tracked_trials()] == [(tracked.key, "another")]


@arrives("compute", "workers")
def test_a_trial_of_several_workers_reports_the_same_and_is_evaluated_on_a_worker(
    smoke, heard, monkeypatch
):
    smoke.compute.workers = 2
    callback, worker = sweep.TuneReportCallback, Mock(side_effect=lambda _, task: task())
    monkeypatch.setattr(callback, "__init__", lambda _: None)
    monkeypatch.setattr(callback, "after_report", lambda _, __, rows, ___: heard.extend(rows))

    def fit_here(spec, manifest, callbacks):
        (rows,), other = callbacks, {"step": -1}  # what the second worker reports
        sweep.fit(spec, manifest, watch=lambda row: rows.after_report(None, [row, other], None))

    monkeypatch.setattr(sweep, "fit_on_ray", fit_here)
    monkeypatch.setattr(sweep, "on_a_worker", worker)
    run_smoke_trial(smoke)
    assert [row[FRACTION] for row in heard] == pytest.approx([i / 20 for i in range(1, 21)])
    assert BOUND in heard[-1]
    worker.assert_called_once()


def test_a_trial_that_was_stopped_is_no_failure_and_may_go_on(smoke, heard, monkeypatch):
    def report(figures):
        heard.append(figures)
        if figures[FRACTION] >= 0.3:
            raise SystemExit  # as Tune does to a trial that it stops

    with monkeypatch.context() as patch:
        patch.setattr(sweep.tune, "report", report)
        with pytest.raises(SystemExit):
            run_smoke_trial(smoke)
    (tracked,) = tracked_trials()
    steps = [point.step for point in tracked.points if point.key == "curve/ce_nats"]
    assert (tracked.status, steps) == ("KILLED", [1, 2, 3, 4, 5, 6])
    run_smoke_trial(smoke)
    assert heard[:6] == heard[6:12]  # no checkpoint yet: trained anew, to the same figures
    (tracked,) = tracked_trials()
    assert tracked.status == "FINISHED"


@pytest.mark.parametrize(("failed", "status"), [([NAME], "FAILED"), ([], "KILLED")])
def test_the_run_of_a_trial_whose_process_was_lost_is_ended(smoke, failed, status):
    spec = RunSpec(smoke, NAME)
    sweep.nest(spec, make_manifest(spec, spec.shards()), trained=False, parent="another")
    plan = SimpleNamespace(experiment="smoke")
    sweep.end_lost_trials(plan, "key", failed)
    (tracked,) = tracked_trials()
    assert (tracked.status, tracked.parent) == (status, "key")
    (path,) = journals("smoke")
    Journal(path).append(status="FINISHED")
    sweep.end_lost_trials(plan, "key", failed)
    assert tracked_trials()[0].status == "FINISHED"


def test_runs_are_nested_also_when_the_parent_is_sent_later(workspace, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sweep", "sweep=s", "samples=2"])
    plan = SimpleNamespace(name="s", experiment="smoke")
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "Tracking", later := Mock())
        sweep.open_parent(plan)
        sweep.open_parent(plan)  # the same command again
    (first, _), (parent, note) = [call.args for call in later.call_args_list]
    assert parent.run.key == first.run.key
    spec = RunSpec(load_experiment(), NAME)
    sweep.nest(spec, make_manifest(spec, spec.shards()), False, parent.run.key)
    train_run()
    _, (child,) = tracked_runs()
    assert "mlflow.parentRunId" not in child.data.tags
    tracking = sweep.Tracking(parent, note)
    tracking.finish()
    sweep.sync_all(tracking.sync.store, "smoke")
    runs = {run.info.run_name: run for run in tracked_runs()[1]}
    assert len(runs) == 2
    assert runs[NAME].data.tags["mlflow.parentRunId"] == runs["sweep"].info.run_id
    assert runs["sweep"].info.status == "FINISHED"
    tags = runs["sweep"].data.tags
    assert "made by `ftlab sweep sweep=s samples=2`" in tags["mlflow.note.content"]
    assert tags["sweep"] == "s" and "mlflow.source.git.commit" in tags


def tracked(project):
    """The sweep's run and the trials' runs, by name, each with the steps of its training rows."""
    client, found = tracked_runs(project.folder, "sweep_smoke")
    runs = {run.info.run_name: run for run in found}
    parent, steps = runs.pop("sweep"), {}
    for name, run in runs.items():
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        rows = client.get_metric_history(run.info.run_id, "curve/ce_nats")
        steps[name] = [row.step for row in rows]
    return parent, runs, steps


@contextmanager
def left_behind(driver):
    """Ends the driver and what it has started, by their ids, however the block ends; yields a list
    for those of a driver that dies in the block.
    """
    processes = [psutil.Process(driver.pid)]
    try:
        yield processes
    finally:
        if driver.poll() is None:
            processes += processes[0].children(recursive=True)
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # nor is one that only has the same id
                process.kill()
        driver.communicate()


@pytest.mark.cluster
def test_a_killed_sweep_goes_on_to_a_good_a_bad_and_a_failing_trial(tmp_path, monkeypatch):
    """Killed when the good one has ended, which is not trained again."""
    project = Project(tmp_path / "project")
    command = ("sweep=smoke", "~space.run", "~space.optim.lr", "concurrent=1", "best_seeds=1",
               "asha={grace_period: 0.2}", "compute.max_failures=0",
               "+space.optim.lr.grid_search=[0.003,1e-9,1e30]")  # fmt: skip
    driver = project.start("python", "-m", "pipelines.cli", "sweep", *command)
    with left_behind(driver) as processes:
        while not [*project.folder.glob("sweeps/smoke/*/lr_1em09/log.txt")]:
            assert driver.poll() is None, driver.communicate()
            sleep(0.2)
        processes += psutil.Process(driver.pid).children(recursive=True)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        good = project.folder / "results/sweep_smoke/lr_0p003/curve.csv"
        made = good.stat().st_ino
        done = project.run("python", "-m", "pipelines.cli", "sweep", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert good.stat().st_ino == made
    assert re.search(r"lr_0p003 .* TERMINATED .* 1 ", done.stdout), "Tune's table"
    assert re.search(r"\nlr_0p003 +\d\.\d{4} ± \d\.\d{4}\n", done.stdout)
    assert re.search(r"\nlr_1em09 +at 20% of its budget stopped early\n", done.stdout)
    failed = "the gradient is not finite at step 2"
    assert re.search(rf"\nlr_1e30 +at 5% of its budget failed: .*{failed}", done.stdout)
    parent, trials, steps = tracked(project)
    assert {name: run.info.status for name, run in trials.items()} == {
        "lr_0p003": "FINISHED", "lr_1em09 KILLED": "KILLED", "lr_1e30 FAILED": "FAILED"
    }  # fmt: skip
    assert trials["lr_0p003"].data.params["optim.lr"] == "0.003"
    assert steps["lr_0p003"] == list(range(1, 21))
    assert steps["lr_1em09 KILLED"] == [1, 2, 3, 4]
    assert not (project.folder / resume_folder("sweep_smoke", "lr_0p003")).exists()
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["best.trial"] == "lr_0p003"
    bound = trials["lr_0p003"].data.metrics["bound/bits_per_token"]
    assert parent.data.tags["best.bound"].startswith(f"{bound:.4f} ± ")
    project.ok("python", "-m", "pipelines.cli", "compose", "experiment=smoke_best")
    assert "lr: 0.003" in (project.folder / "params.yaml").read_text()
