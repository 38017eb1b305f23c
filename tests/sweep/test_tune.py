"""Sweeps on Ray Tune: when trials are stopped, what they need, and whole sweeps."""

import os
import pickle
import re
import signal
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import psutil
import pytest
from ray.tune.schedulers import FIFOScheduler

from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster import connection as cluster
from pipelines.config.schema import Compute
from pipelines.host.errors import UserError
from pipelines.host.files import resume_folder
from pipelines.sweep import tune as sweep
from pipelines.sweep.plan import BOUND, ERROR, FRACTION, TRAINING_BOUND, make_scheduler
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.project_copy import Project
from tests.support.sweeps import plan_of
from tests.support.training import tracked_runs

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
def test_tune_is_told_what_the_sweep_says(
    machine, monkeypatch, tmp_path, capsys, concurrent, expected
):
    """As many trials at once as there is room for, 5, where the sweep leaves it open."""
    asked = ("asha={reduction_factor: 3}", "compute.max_failures=7", f"concurrent={concurrent}")
    plan, folder = plan_of(*asked), tmp_path / "smoke" / "state"
    made, known, run = Mock(), Mock(side_effect=[None, before := Mock(num_terminated=3)]), Mock()
    monkeypatch.setattr(sweep.tune, "Tuner", made)
    monkeypatch.setattr(sweep.tune, "with_resources", lambda train, _: train)
    for name, value in {"connect": Mock(), "known_results": known, "run_trial": run}.items():
        monkeypatch.setattr(sweep, name, value)
    machine({"CPU": 5.0})
    assert sweep.run_trials(plan, folder, "parent") is made.return_value.fit.return_value
    assert capsys.readouterr().out == "sweep smoke: 4 trials, 0 ended before\n"
    ((train,), told) = made.call_args
    train({"trial": "baseline_seed_1"})
    *given, command = run.call_args.args
    log = folder / "baseline_seed_1/log.txt"
    assert given == [plan.trials["baseline_seed_1"], "parent", log]
    assert re.fullmatch("[0-9a-f]{8}", command)
    made.restore.assert_not_called()
    restored = sweep.run_trials(plan, folder, "parent")  # goes on with the fourth trial
    assert restored is made.restore.return_value.fit.return_value
    assert capsys.readouterr().out == "sweep smoke: 4 trials, 3 ended before\n"
    assert made.restore.call_args.kwargs == {"restart_errored": True}
    known.side_effect, before.num_terminated = [before], 4
    assert sweep.run_trials(plan, folder, "parent") is before
    assert told["tune_config"].max_concurrent_trials == expected
    assert told["tune_config"].scheduler._reduction_factor == 3
    assert told["run_config"].failure_config.max_failures == 7
    assert told["run_config"].verbose == 0


def test_a_line_says_how_a_trial_has_ended_and_how_many_have(tmp_path, capsys):
    def trial(name, finished, error_file=None):
        last = {FRACTION: 0.5}
        ended = Mock(config={"trial": name}, last_result=last, pickled_error_file=error_file)
        ended.is_finished.return_value = finished
        return ended

    (tmp_path / "error").write_bytes(pickle.dumps("it burns"))
    running, stopped, lost = trial("a", False), trial("b", False), trial("c", True)
    failed = trial("d", False, str(tmp_path / "error"))
    progress, trials = sweep.TrialProgress(5), [running, stopped, lost, failed]
    progress.on_trial_complete(1, trials, stopped)
    progress.on_trial_error(1, trials, failed)
    progress.on_trial_error(1, trials, lost)
    at = "at 50% of its budget"
    assert capsys.readouterr().err.splitlines() == [
        f"2/5 b: stopped early, {at}",
        f"2/5 d: failed, {at}: it burns",
        f"1/5 c: failed, {at}: no reason given",
    ]


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """Lets Tune say that trials have ended like this, by their names."""
    monkeypatch.chdir(tmp_path)
    for name in ("open_parent", "close_parent", "end_trial"):
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
    ended(**{name: ({FRACTION: 0.5}, None), other: ({}, "it burns")})
    with pytest.raises(UserError, match=r"^no trial is done: it burns$"):
        sweep.sweep_once(plan, tmp_path)
    said = capsys.readouterr().out
    assert re.search(rf"{name} +stopped early +50%.*\n{other} +failed", said)
    assert [call.args[2] for call in sweep.end_trial.call_args_list] == [False, True]
    sweep.close_parent.assert_not_called()
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
    name, other, *_ = plan.trials
    ended(**{other: ({FRACTION: 0.5}, None), name: ({BOUND: 0.5, ERROR: 0.1}, None)})
    sweep.sweep_once(plan, tmp_path)
    (call,) = sweep.end_trial.call_args_list
    assert (call.args[0].name, call.args[2]) == (other, False)
    said = capsys.readouterr().out
    assert said.index(name) < said.index(other)
    assert "The best of 2 trials looks better than it is" in said
    assert said.endswith("\n    make repro EXPERIMENT=smoke_best\n")
    assert sweep.close_parent.call_args.args[2].name == name


@pytest.mark.parametrize("code", [0, 1])
def test_the_command_sweeps_when_dvc_has_made_the_tokens(tmp_path, monkeypatch, code):
    dvc, made = Mock(return_value=Mock(returncode=code)), Mock()
    made.compose_plan.return_value = plan_of(), "the composed experiment"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep.subprocess, "run", dvc)
    monkeypatch.setattr(sweep, "check_ray", Mock())
    for name in ("compose_plan", "write_params", "state_folder", "sweep_once"):
        monkeypatch.setattr(sweep, name, getattr(made, name))
    with pytest.raises(UserError, match="dvc repro tokenize@target") if code else nullcontext():
        sweep.main(["samples=3", "sweep=smoke"])
    made.compose_plan.assert_called_once_with("smoke", ["samples=3"])
    made.write_params.assert_called_once_with("the composed experiment")
    assert dvc.call_args.args[0][-2:] == ["repro", "tokenize@target"]
    assert made.sweep_once.called == (code == 0)
    assert (tmp_path / "sweeps/smoke.lock").exists() == (code == 0)


# whole sweeps


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
        lines = iter(driver.stdout.readline, "")
        said = []
        while not said or not said[-1].startswith("1/3 lr_0p003: bound"):
            said.append(next(lines, ""))
            assert said[-1], "".join(said)  # else it has ended
        assert "sweep smoke: 3 trials, 0 ended before\n" in said
        processes += psutil.Process(driver.pid).children(recursive=True)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        good = project.folder / "results/sweep_smoke/lr_0p003/curve.csv"
        made = good.stat().st_ino
        done = project.stage("sweep", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert good.stat().st_ino == made
    assert re.search(r"lr_0p003 +done +100% +\d\.\d{4}", done.stdout)
    assert re.search(r"lr_1em09 +stopped early +20%", done.stdout)
    failed = "the gradient is not finite at step 2"
    assert re.search(rf"lr_1e30 +failed +5% .*{failed}", done.stdout)
    parent, trials, steps = tracked(project)
    assert {name: run.info.status for name, run in trials.items()} == {
        "lr_0p003": "FINISHED", "lr_1em09": "KILLED", "lr_1e30": "FAILED"
    }  # fmt: skip
    assert trials["lr_0p003"].data.params["optim.lr"] == "0.003"
    assert steps["lr_0p003"] == list(range(1, 21))
    assert steps["lr_1em09"] == [1, 2, 3, 4]
    assert not (project.folder / resume_folder("sweep_smoke", "lr_0p003")).exists()
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["best.trial"] == "lr_0p003"
    bound = trials["lr_0p003"].data.metrics["bound/bits_per_token"]
    assert parent.data.tags["best.bound"].startswith(f"{bound:.4f} ± ")
    project.ok("python", "-m", "pipelines.cli", "compose", "experiment=smoke_best")
    assert "lr: 0.003" in (project.folder / "params.yaml").read_text()
    again = project.stage("sweep", *command)
    assert "3 trials, 2 ended before" in again.stdout  # the one that failed is tried again
