"""Sweeps on Ray Tune: when trials are stopped, what they need, and whole sweeps."""

import json
import os
import re
import signal
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from mlflow import MlflowClient

from pipelines.artifacts.curve import CurveRow
from pipelines.artifacts.paths import resume_folder
from pipelines.artifacts.result_files import validate
from pipelines.cluster import connection as cluster
from pipelines.common.errors import UserError
from pipelines.config.schema import Compute
from pipelines.sweep import tune as sweep
from pipelines.sweep.result import DONE, FAILED, STOPPED, Folder, Result
from tests.support.project_copy import Project
from tests.support.sweeps import plan_of


@pytest.fixture
def plan():
    return plan_of("asha={grace: 0.2, reduction: 2}")


def decision(scheduler, name, fraction, bound):
    candidate = SimpleNamespace(trial_id=name)
    scheduler.on_trial_add(None, candidate)
    heard = {sweep.FRACTION: fraction, sweep.BOUND: bound}
    return scheduler.on_trial_result(None, candidate, heard)


def test_asha_stops_a_trial_that_is_worse_at_a_rung(plan):
    scheduler = sweep.make_scheduler(plan, {})
    assert decision(scheduler, "first", 0.2, 1.0) == "CONTINUE"
    assert decision(scheduler, "too early", 0.19, 9.0) == "CONTINUE"
    assert decision(scheduler, "worse", 0.2, 2.0) == "STOP"
    assert decision(scheduler, "better", 0.2, 0.5) == "CONTINUE"
    assert decision(scheduler, "at the end", 1.0, 0.4) == "CONTINUE"


def test_asha_remembers_trials_of_an_earlier_command(plan):
    name, experiment = next(iter(plan.trials.items()))
    steps = experiment.steps(experiment.runs[name])
    for status, upto in ((DONE, steps), (STOPPED, 4)):
        curve = [CurveRow(i, i, 0.0, 0.0, 0.1, 9.0, kl_bits=1.0) for i in range(1, upto + 1)]
        ended = {name: Result(name, "h", status, curve=curve)}
        assert decision(sweep.make_scheduler(plan, ended), "worse", 0.2, 2.0) == "STOP"
    assert decision(sweep.make_scheduler(plan, {}), "worse", 0.2, 2.0) == "CONTINUE"


def test_without_asha_nothing_is_stopped():
    scheduler = sweep.make_scheduler(plan_of(), {})
    for name, bound in (("a", 1.0), ("b", 9.0)):
        assert decision(scheduler, name, 0.5, bound) == "CONTINUE"


@pytest.mark.parametrize(
    ("status", "stopper", "kept"),
    [
        (DONE, "", True),
        (FAILED, "", False),
        (STOPPED, "ASHA grace 0.2 reduction 2", True),
        (STOPPED, "ASHA grace 0.1 reduction 2", False),
    ],
)
def test_which_earlier_results_still_hold(plan, monkeypatch, tmp_path, status, stopper, kept):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "trial_hash", lambda experiment, name: "h")
    _, name, *_ = plan.trials
    Folder("smoke", name).write(Result(name, "h", status, stopper))
    assert list(sweep.known_results(plan)) == [name] * kept


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


def test_a_sweep_of_which_all_trials_failed_is_an_error(plan, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    failed = {name: Result(name, "h", FAILED, error="it burns") for name in plan.trials}
    monkeypatch.setattr(sweep, "known_results", lambda plan: failed)
    monkeypatch.setattr(sweep, "settle", lambda experiment, name, *_: failed[name])
    for name in ("open_parent", "close_parent"):
        monkeypatch.setattr(sweep, name, Mock())
    with pytest.raises(UserError, match=r"^all 4 trials failed: it burns$"):
        sweep.sweep_once(plan)
    assert capsys.readouterr().out.endswith("The report is in sweeps/smoke/report/index.html\n")


# whole sweeps


def tracked(project):
    """The sweep's run and the trials' runs, by name, each with the steps of its training rows."""
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("sweep_smoke")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    parent, steps = runs.pop("sweep"), {}
    for name, run in runs.items():
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        rows = client.get_metric_history(run.info.run_id, "train/ce_nats")
        steps[name] = [row.step for row in rows]
    return parent, runs, steps


def read_result(project, name):
    """The result and the inode of its file, another one if it was written again."""
    path = project.folder / "sweeps/smoke/trials" / name / "result.json"
    return validate(Result, path.read_bytes()), path.stat().st_ino


@pytest.fixture
def on_cluster(two_nodes, monkeypatch):
    """Sweeps run on the cluster of all tests, not on a Ray of their own."""
    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)


@pytest.mark.cluster
def test_a_sweep_with_a_good_a_bad_and_a_failing_trial(on_cluster, tmp_path):
    project = Project(tmp_path / "project")
    command = ("sweep=smoke", "~space.run", "~space.optim.lr", "concurrent=1", "asha={grace: 0.2}",
               "+space.optim.lr.grid=[0.003,1e-9,1e30]")  # fmt: skip
    done = project.stage("sweep", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2/3 lr_1em09: stopped early, at 20% of its budget" in done.stderr
    assert "3/3 lr_1e30: failed: lr_1e30: the gradient is not finite at step 2" in done.stderr
    assert re.search(r"lr = 0\.003 +1 +\d\.\d{4}", done.stdout)
    assert done.stdout.endswith("The report is in sweeps/smoke/report/index.html\n")
    parent, trials, steps = tracked(project)
    assert {name: run.info.status for name, run in trials.items()} == {
        "lr_0p003": "FINISHED", "lr_1em09": "KILLED", "lr_1e30": "FAILED"
    }  # fmt: skip
    assert trials["lr_1em09"].data.tags["stopped_early"] == "yes"
    assert trials["lr_0p003"].data.params["optim.lr"] == "0.003"
    assert steps["lr_0p003"] == list(range(1, 21))
    assert steps["lr_1em09"] == [1, 2, 3, 4]
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["best.trial"] == "lr_0p003"
    result, _ = read_result(project, "lr_0p003")
    assert parent.data.metrics["best/bound_bits_per_token/mean"] == pytest.approx(
        result.evaluation.bits_per_token.filtering.mean
    )
    report = (project.folder / "sweeps/smoke/report/report.md").read_text()
    assert "1 trial stopped early, and not ranked." in report
    assert "1 trial failed." in report


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
def test_a_killed_sweep_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    project = Project(tmp_path / "project")
    command = ("sweep=smoke", "~space.run", "~space.optim", "concurrent=2",
               "+space.run.tokens.grid=[10400,520000]")  # fmt: skip
    driver = project.start("python", "-m", "pipelines.sweep", *command)
    with left_behind(driver) as processes:
        lines = iter(driver.stdout.readline, "")
        assert any(line.startswith("1/2 tokens_10400: bound") for line in lines)
        processes += psutil.Process(driver.pid).children(recursive=True)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        _, made = read_result(project, "tokens_10400")
        assert not (project.folder / "sweeps/smoke/trials/tokens_520000/result.json").exists()
        done = project.stage("sweep", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 trials, 1 of them done before" in done.stdout
    assert read_result(project, "tokens_10400")[1] == made
    parent, trials, steps = tracked(project)
    assert {run.info.status for run in (parent, *trials.values())} == {"FINISHED"}
    assert steps["tokens_10400"] == list(range(1, 21))
    result, _ = read_result(project, "tokens_520000")
    assert steps["tokens_520000"] == [row.step for row in result.curve]
    assert not resume_folder("sweep_smoke", "tokens_520000").exists()


@pytest.mark.cluster
def test_a_trial_of_two_workers(on_cluster, tmp_path):
    project = Project(tmp_path / "project")
    command = ("sweep=smoke", "~space.run", "~space.optim.lr", "+space.optim.lr.grid=[0.003]")
    done = project.stage("sweep", *command, "compute.workers=2", "asha={grace: 0.2}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1/1 lr_0p003: bound" in done.stderr
    result, _ = read_result(project, "lr_0p003")
    _, trials, steps = tracked(project)
    assert trials["lr_0p003"].info.status == "FINISHED"
    assert steps == {"lr_0p003": [row.step for row in result.curve]}
    rows = (project.folder / "sweeps/smoke/trials/lr_0p003/rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 21))
