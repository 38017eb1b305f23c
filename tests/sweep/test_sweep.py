"""Sweeps: mistakes are told before any work, trials are run once, what was cut short goes on."""

import json
import os
import re
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from mlflow import MlflowClient

from pipelines.artifacts.checkpoint import resume_folder
from pipelines.cluster import connection as cluster
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.schema import Compute
from pipelines.sweep import trial
from pipelines.sweep import tune as sweep
from pipelines.sweep.schema import Dimension, compose_plan, known_sweeps, trial_name
from pipelines.sweep.trial import (
    DONE,
    FAILED,
    STOPPED,
    Folder,
    Result,
    card_of,
    nest,
    settle,
    trial_hash,
)
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.run import Tracking, find_record, new_record
from pipelines.tracking.store import Store, send_waiting, store_uri
from tests.support.project_copy import Project
from tests.support.training import train_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def plan_of(*overrides, name="smoke"):
    return compose_plan(name, list(overrides))[0]


@pytest.mark.parametrize("name", known_sweeps() or ["kappa", "smoke"])
def test_every_shipped_sweep_is_valid(in_root, name):
    plan = plan_of(name=name)
    assert len(plan.trials) > 1
    for own, experiment in plan.trials.items():
        assert list(experiment.runs) == [own]
        assert experiment.name == f"sweep_{name}"


MISTAKES = [
    ("space.run.kapa_bits.grid=[1]", "space.run.kapa_bits: no such setting; run has data, model"),
    ("space.optim.rate.grid=[1]", "space.optim.rate: no such setting; optim has batch_size"),
    ("space.architecture.depth.grid=[1]", "space.architecture.depth: no such setting"),
    ("space.runs.seed.grid=[1]", "space.runs.seed: no such setting; a key starts with run, arch"),
    ("space.run.seed.grid=[]", "space.run.seed.grid: not a list of values"),
    ("space.run.seed.grid=3", "space.run.seed.grid: not a list of values"),
    ("space.run.seed.grid=[[3]]", "space.run.seed.grid: values are single"),
    ("space.run.seed=3", "space.run.seed: not a mapping such as {grid"),
    ("space.run.tokens.gird=[3]", "space.run.tokens.gird: not a mapping such as {grid"),
    ("space.run.seed.choice=[3]", "space.run.seed: one of grid, choice, uniform, loguniform, not"),
    ("space.optim.lr.loguniform=[1,0.1]", "space.optim.lr.loguniform: [1, 0.1] is not [lowest"),
    ("space.optim.lr.loguniform=[0.1]", "space.optim.lr.loguniform: [0.1] is not [lowest"),
    ("space.optim.lr.loguniform=[0,0.1]", "space.optim.lr.loguniform: the lowest, 0, must be"),
    ("space.optim.lr.loguniform=[a,b]", "space.optim.lr.loguniform: ['a', 'b'] is not [lowest"),
    ("space.optim.batch_size.uniform=[1,4]", "batch_size is a whole number"),
    ("space.run.kappa_bits.grid=[9]", "kappa_bits: 9.0 is outside 0 … 8"),
    ("space.run.kappa_bits.grid=[high]", "kappa_bits: Value 'high'"),
    ("space.run.model.grid=[huge]", "model: 'huge' is not one of target_small, text_small"),
    ("space.run.data.grid=[target,stdlib]", "bounds on stdlib and target cannot be compared"),
    ("space.optim.lr.loguniform=[1,inf]", "[1, inf] is not [lowest"),
    ("~space", "space: empty"),
    ("run=nope", "run: 'nope' is not one of baseline, free_k1_8"),
    ("~run", "run is missing"),
    ("experiment=nope", "Could not find 'experiment/nope'"),
    ("samples=0", "samples: 0 must be at least 1"),
    ("samples=many", "samples: Value 'many'"),
    ("concurrent=0", "concurrent: 0 must be at least 1"),
    ("asha={grace: 1}", "asha.grace: 1.0 is not a fraction"),
    ("asha={reduction: 1}", "asha.reduction: 1 must be at least 2"),
    ("asha={patience: 1}", "asha.patience: Key 'patience' not in 'Asha'"),
    ("samplez=3", "Could not override 'samplez'"),
    ("runs.free_k1_8.seed=-1", "runs.free_k1_8.seed: -1 is outside 0 … 2^32 − 1"),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_its_key(in_root, override, words):
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        plan_of(override)
    assert "conf/" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_drawn_is_not_sampled(in_root):
    with pytest.raises(UserError, match="samples: 2, but space has nothing that is drawn"):
        plan_of("samples=2", "~space.optim")


def test_a_setting_given_nested_and_with_dots_is_refused(tmp_path, monkeypatch):
    conf = tmp_path / "conf"
    conf.mkdir()
    for entry in (ROOT / "conf").iterdir():
        if entry.name != "sweep":
            (conf / entry.name).symlink_to(entry)
    (conf / "sweep").mkdir()
    text = "experiment: smoke\nrun: free_k1_8\nspace:\n  run.seed: {grid: [0, 1]}\n"
    (conf / "sweep" / "dots.yaml").write_text(text)
    (conf / "sweep" / "twice.yaml").write_text(text + "  run: {seed: {grid: [0, 1]}}\n")
    monkeypatch.chdir(tmp_path)
    assert list(plan_of(name="dots").trials) == ["seed_0", "seed_1"]
    with pytest.raises(UserError, match=r"space\.run\.seed: given twice"):
        plan_of(name="twice")


def test_asha_does_not_compare_tokenizers(in_root):
    two = (
        "run=text_free_k1_2",
        "+source@data.large=text",
        "data.large={parts: ${data.stdlib.parts}, validation_share: 0.25, vocab_size: 512}",
        "space.run.data.grid=[stdlib,large]",
    )
    assert plan_of(*two).unit == "bits_per_byte"
    with pytest.raises(UserError, match="asha: it compares trials in bits per token"):
        plan_of(*two, "asha={grace: 0.5}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage: python -m pipelines.sweep"),
        (["sweep=smoke", "sweep=kappa"], "usage: python -m pipelines.sweep"),
        (["sweep=kapa"], "sweep: 'kapa' is not one of kappa, smoke"),
        (["sweep=../smoke"], "is not one of kappa, smoke"),
    ],
)
def test_the_command_names_the_sweeps_there_are(in_root, monkeypatch, arguments, words):
    monkeypatch.setattr(sys, "argv", ["sweep", *arguments])
    with pytest.raises(UserError, match=words):
        sweep.main()


def test_an_unknown_key_is_one_line_and_nothing_is_begun(tmp_path):
    project = Project(tmp_path / "project")
    before = sorted(project.folder.iterdir())
    done = project.stage("sweep", "sweep=smoke", "+space.run.kapa_bits.grid=[1]")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "space.run.kapa_bits: no such setting" in line
    assert sorted(project.folder.iterdir()) == before


def test_settings_reach_the_experiment_of_a_trial(in_root):
    plan = plan_of(
        "space.run={kappa_bits: {grid: [0.25]}, seed: {grid: [7]}, tokens: {grid: [20800]}}",
        "~space.run.kappa_bits",
        "++space.run.kappa_bits.choice=[0.25]",
        "~space.optim.lr",
        "++space.optim.clip.grid=[0.5]",
        "++space.architecture.latent_bits.grid=[3]",
        "models.target_small.optim.lr=0.5",
        "evaluation.iwae_samples=5",
    )
    ((name, experiment),) = plan.trials.items()
    run, preset = experiment.runs[name], experiment.models["target_small"]
    assert (run.kappa_bits, run.tokens, run.data) == (0.25, 20800, "target")
    assert (preset.optim.clip, preset.optim.lr, preset.optim.batch_size) == (0.5, 0.5, 8)
    assert (preset.architecture.latent_bits, preset.architecture.d_model) == (3, 16)
    assert experiment.evaluation.iwae_samples == 5


def test_draws_are_the_same_again_and_more_samples_add_to_them(in_root):
    few, again, more = (
        list(plan_of("~space.run", f"samples={n}").settings.values()) for n in (3, 3, 5)
    )
    assert few == again == more[:3]
    rates = [settings["optim.lr"] for settings in more]
    assert len(set(rates)) == 5
    assert all(1e-3 <= rate <= 1e-2 for rate in rates)
    assert next(iter(plan_of("~space.run", "seed=1").settings.values())) != few[0]


def test_each_draw_is_tried_at_every_point_of_the_grid(in_root):
    plan = plan_of("samples=2")
    found = [tuple(settings.values()) for settings in plan.settings.values()]
    rates = {rate for _, _, rate in found}
    assert len(rates) == 2
    assert set(found) == {(k, s, r) for k in (None, 0.5) for s in (0, 1) for r in rates}


def test_loguniform_is_uniform_in_the_logarithm():
    draws = [Dimension("optim.lr", "loguniform", (1e-4, 1.0)).draw(0, i) for i in range(400)]
    assert 160 < sum(draw < 1e-2 for draw in draws) < 240


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("architecture.latent_bits", [4, 8]),
        ("architecture.latent_std", [0.1, 0.2]),
        ("run.kappa_warmup_steps", [0, 9]),
    ],
)
def test_a_baseline_is_not_trained_once_for_each_latent(in_root, key, values):
    plan = plan_of(f"+space.{key}.grid={values}".replace(" ", ""), "~space.run.seed")
    kinds = [(s["run.kappa_bits"], s[key]) for s in plan.settings.values()]
    assert kinds == [(None, values[0]), (0.5, values[0]), (0.5, values[1])]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"run.kappa_bits": 0.125, "run.seed": 0}, "kappa_bits_0p125_seed_0"),
        ({"run.kappa_bits": None}, "baseline"),
        ({"run.kappa_bits": 1.0}, "kappa_bits_1"),
        ({"optim.lr": 1e-5, "run.model": "text_small"}, "lr_1em05_model_text_small"),
        ({"run.tokens": 10_400_000}, "tokens_10400000"),
        ({"architecture.tied": True}, "tied_true"),
    ],
)
def test_trial_names(settings, name):
    assert trial_name(settings) == name


# what a trial leaves


@pytest.fixture
def smoke(workspace):
    """The smoke experiment as the only trial's own, in a workspace with its tokens."""
    experiment = load_experiment()
    experiment.runs = {"free_k1_8": experiment.runs["free_k1_8"]}
    return experiment


def test_a_result_holds_for_as_long_as_what_decides_it(smoke):
    folder, name = Folder("s", "free_k1_8"), "free_k1_8"
    hash = trial_hash(smoke, name)
    folder.write(Result(name, hash, DONE, documents={"bound_bits": [1.0]}))
    assert folder.read(hash).documents == {"bound_bits": [1.0]}
    smoke.evaluation.iwae_samples += 1
    assert folder.read(trial_hash(smoke, name)) is None
    smoke.evaluation.iwae_samples -= 1
    smoke.runs[name].seed += 1
    assert folder.read(trial_hash(smoke, name)) is None


def test_a_result_that_cannot_be_read_is_passed_over(smoke, capsys):
    folder = Folder("s", "free_k1_8")
    folder.write(Result("free_k1_8", "h", DONE))
    folder.result.write_text("{")
    assert folder.read("h") is None
    assert "not readable" in capsys.readouterr().out


def test_rows_of_two_attempts_are_there_once(smoke):
    folder = Folder("s", "t")
    folder.path.mkdir(parents=True)
    for hash, step, loss in (("old", 3, 9.0), ("h", 1, 3.0), ("h", 2, 2.0), ("h", 2, 2.5)):
        folder.add_row(hash, {"step": step, "ce_nats": loss})
    with open(folder.rows, "a") as file:
        file.write('{"hash": "h", "st')
    assert [(r["step"], r["ce_nats"]) for r in folder.read_rows("h")] == [(1, 3.0), (2, 2.5)]


def run_smoke_trial(experiment, report=lambda fraction, bound: None, parent="key"):
    return trial.run_trial(experiment, "free_k1_8", "s", parent, report)


def test_a_trial_reports_its_bound_but_not_when_it_is_trained(smoke):
    heard = []
    result = run_smoke_trial(smoke, lambda *row: heard.append(row))
    assert result.status == DONE
    assert [fraction for fraction, _ in heard] == pytest.approx([i / 20 for i in range(1, 20)])
    row = result.curve[3]
    assert heard[3][1] == pytest.approx(row["ce_nats"] / 0.6931471805599453 + row["kl_bits"])
    assert Folder("s", "free_k1_8").read(trial_hash(smoke, "free_k1_8")) == result
    assert result.metrics["bits_per_token"]["iwae"]["mean"] == pytest.approx(
        sum(result.documents["bound_bits"]) / sum(result.documents["document_tokens"]), rel=1e-4
    )


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
    steps = [step for key, _, _, step in record.metrics if key == "train/ce_nats"]
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
    steps = [step for key, _, _, step in record.metrics if key == "train/ce_nats"]
    assert steps == list(range(1, 21))
    assert (record.status, record.tags["stopped_early"]) == ("FINISHED", "")


# MLflow


def test_runs_are_nested_also_when_the_parent_is_sent_later(workspace):
    experiment = load_experiment()
    parent = Record(store_uri(), "smoke", "sweep", "", started=1)
    parent.tags = {"record": parent.key}
    nest(parent.key, card_of(experiment, "free_k1_8"), experiment)
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
    card = card_of(smoke, "free_k1_8")
    nest("key", card, smoke)
    (record,) = records("smoke", "free_k1_8")
    assert (record.parent, record.status) == ("key", "FINISHED")
    assert find_record(store_uri(), card, smoke, go_on=True).key == record.key
    assert new_record(store_uri(), card, smoke).key != record.key


# what Tune is told


def fake_plan(asha=True):
    plan = plan_of(*(["asha={grace: 0.2, reduction: 2}"] if asha else []))
    names = list(plan.trials)
    steps = plan.trials[names[0]].steps(plan.trials[names[0]].runs[names[0]])
    return plan, names, steps


def curve(bits, steps, upto):
    rows = range(1, upto + 1)
    return [{"step": i, "tokens": i, "ce_nats": 0.0, "kl_bits": bits} for i in rows]


def decision(scheduler, name, fraction, bound):
    candidate = SimpleNamespace(trial_id=name)
    scheduler.on_trial_add(None, candidate)
    heard = {sweep.FRACTION: fraction, sweep.BOUND: bound}
    return scheduler.on_trial_result(None, candidate, heard)


def test_asha_stops_a_trial_that_is_worse_at_a_rung(in_root):
    plan, _, _ = fake_plan()
    scheduler = sweep.scheduler(plan, {})
    assert decision(scheduler, "first", 0.2, 1.0) == "CONTINUE"
    assert decision(scheduler, "too early", 0.19, 9.0) == "CONTINUE"
    assert decision(scheduler, "worse", 0.2, 2.0) == "STOP"
    assert decision(scheduler, "better", 0.2, 0.5) == "CONTINUE"
    assert decision(scheduler, "at the end", 1.0, 0.4) == "CONTINUE"


def test_asha_remembers_trials_of_an_earlier_command(in_root):
    plan, names, steps = fake_plan()
    ended = {names[0]: Result(names[0], "h", DONE, curve=curve(1.0, steps, steps))}
    scheduler = sweep.scheduler(plan, ended)
    assert decision(scheduler, "worse", 0.2, 2.0) == "STOP"
    assert decision(sweep.scheduler(plan, {}), "worse", 0.2, 2.0) == "CONTINUE"
    ended = {names[0]: Result(names[0], "h", STOPPED, curve=curve(1.0, steps, 4))}
    assert decision(sweep.scheduler(plan, ended), "worse", 0.2, 2.0) == "STOP"


def test_without_asha_nothing_is_stopped(in_root):
    plan, _, _ = fake_plan(asha=False)
    scheduler = sweep.scheduler(plan, {})
    assert {decision(scheduler, name, 0.5, b) for name, b in (("a", 1.0), ("b", 9.0))} == {
        "CONTINUE"
    }


@pytest.mark.parametrize(
    ("status", "stopper", "kept"),
    [
        (DONE, "", True),
        (FAILED, "", False),
        (STOPPED, "ASHA grace 0.2 reduction 2", True),
        (STOPPED, "ASHA grace 0.1 reduction 2", False),
    ],
)
def test_which_earlier_results_still_hold(in_root, monkeypatch, tmp_path, status, stopper, kept):
    plan, names, _ = fake_plan()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "trial_hash", lambda experiment, name: "h")
    Folder("smoke", names[1]).write(Result(names[1], "h", status, stopper))
    assert list(sweep.known_results(plan)) == ([names[1]] if kept else [])


def machine(monkeypatch, has):
    """Let Ray say that its one node has this."""
    node = {"Alive": True, "NodeID": "here", "Resources": has}
    monkeypatch.setattr(cluster.ray, "nodes", lambda: [node])
    monkeypatch.setattr(cluster.ray, "cluster_resources", lambda: has)
    monkeypatch.setattr(sweep, "check_shared", lambda folder: None)


@pytest.mark.parametrize(
    ("compute", "has", "takes", "at_once"),
    [
        (Compute(), {"CPU": 4.0}, {"CPU": 1.0}, 4),
        (Compute(cpus_per_worker=3), {"CPU": 8.0}, {"CPU": 3.0}, 2),
        (Compute(), {"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 1.0}, 2),
        (Compute(gpus_per_worker=0.25), {"CPU": 16.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 0.25}, 8),
        (Compute(gpus_per_worker=0), {"CPU": 3.0, "GPU": 1.0}, {"CPU": 1.0}, 3),
        (Compute(workers=2), {"CPU": 5.0}, {"memory": 1e6}, 2),
        (Compute(workers=4), {"CPU": 16.0, "GPU": 8.0}, {"memory": 1e6}, 2),
    ],
)
def test_what_a_trial_takes_and_how_many_have_room(monkeypatch, compute, has, takes, at_once):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    machine(monkeypatch, has)
    assert sweep.resources(compute).required_resources == takes
    assert sweep.room(compute) == at_once


@pytest.mark.parametrize("address", ["", "10.0.0.1:6379"])
@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (Compute(cpus_per_worker=4), "1 of 4 CPUs and 0 GPUs each .* room for 0: 2 CPUs"),
        (Compute(workers=4), "4 of 1 CPUs and 0 GPUs each .* room for 2: 2 CPUs"),
        (Compute(gpus_per_worker=1), "1 of 1 CPUs and 1 GPUs each .* room for 0: 2 CPUs"),
    ],
)
def test_a_trial_that_there_is_no_room_for_is_not_waited_for(monkeypatch, compute, words, address):
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(sweep, "PATIENCE", 0.0)
    machine(monkeypatch, {"CPU": 2.0})
    with pytest.raises(UserError, match=words):
        sweep.room(compute)


# whole sweeps


def tracked(project):
    """The sweep's run and the trials' runs, by name, each with the steps of its training rows."""
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("sweep_smoke")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if run.info.run_name == "sweep"]
    trials = {run.info.run_name: run for run in runs if run is not parent}
    assert len(trials) == len(runs) - 1
    assert {r.data.tags["mlflow.parentRunId"] for r in trials.values()} == {parent.info.run_id}
    steps = {
        name: [p.step for p in client.get_metric_history(run.info.run_id, "train/ce_nats")]
        for name, run in trials.items()
    }
    return parent, trials, steps


def read_result(project, name):
    path = project.folder / "sweeps/smoke/trials" / name / "result.json"
    return Result(**json.loads(path.read_text())), path.stat().st_ino


@pytest.mark.cluster
def test_a_sweep_with_a_good_a_bad_and_a_failing_trial(tmp_path):
    project = Project(tmp_path / "project")
    command = (
        "sweep=smoke",
        "~space.run",
        "~space.optim.lr",
        "+space.optim.lr.grid=[0.003,1e-9,1e30]",
        "concurrent=1",
        "asha={grace: 0.2}",
    )
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
    result, made = read_result(project, "lr_0p003")
    assert parent.data.metrics["best/bound_bits_per_token/mean"] == pytest.approx(
        result.metrics["bits_per_token"]["iwae"]["mean"]
    )
    report = (project.folder / "sweeps/smoke/report/report.md").read_text()
    assert "1 trial stopped early, and not ranked." in report
    assert "1 trial failed." in report

    again = project.stage("sweep", *command)
    assert "3 trials, 2 of them done before" in again.stdout
    assert read_result(project, "lr_0p003")[1] == made
    all_failed = project.stage("sweep", *command[:3], "+space.optim.lr.grid=[1e30]")
    assert all_failed.returncode == 2
    assert "error: all 1 trials failed: lr_1e30: the gradient" in all_failed.stderr


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
def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
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
    assert set(trials) == {"tokens_10400", "tokens_520000"}
    assert {run.info.status for run in (parent, *trials.values())} == {"FINISHED"}
    assert steps["tokens_10400"] == list(range(1, 21))
    result, _ = read_result(project, "tokens_520000")
    assert steps["tokens_520000"] == [row["step"] for row in result.curve]
    assert not resume_folder("sweep_smoke", "tokens_520000").exists()


@pytest.mark.cluster
def test_a_trial_of_two_workers(tmp_path):
    project = Project(tmp_path / "project")
    command = ("sweep=smoke", "~space.run", "~space.optim.lr", "+space.optim.lr.grid=[0.003]")
    done = project.stage("sweep", *command, "compute.workers=2", "asha={grace: 0.2}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1/1 lr_0p003: bound" in done.stderr
    result, _ = read_result(project, "lr_0p003")
    _, trials, steps = tracked(project)
    assert trials["lr_0p003"].info.status == "FINISHED"
    assert steps == {"lr_0p003": [row["step"] for row in result.curve]}
    rows = (project.folder / "sweeps/smoke/trials/lr_0p003/rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 21))
