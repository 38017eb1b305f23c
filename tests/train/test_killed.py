"""Runs that are killed, again and again, end as if nothing had happened."""

import multiprocessing
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml

from pipelines.artifacts.checkpoint import read_checkpoint
from pipelines.artifacts.paths import checkpoint_path
from pipelines.tracking.outbox import records
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.curve_callback import CurveCallback
from tests.support.training import RUN, losses, outcome, same, tracked_runs, train_run

STEPS, NEVER = 60, -1


def train_until(folder, step, segment=0, **changes):
    """In a process of its own: train with a checkpoint every step, to SIGKILL after ``step`` if the
    segment under way ends after ``segment``.
    """
    os.chdir(folder)
    torch.set_num_threads(1)  # as conftest.py does: sums of two threads round in another way
    fit_module.CHECKPOINT_SECONDS = 0.0
    inherited = CurveCallback.on_train_batch_end

    def die(self, trainer, *rest):
        inherited(self, trainer, *rest)
        if trainer.global_step == step and trainer.max_steps > segment:
            os.kill(os.getpid(), signal.SIGKILL)

    CurveCallback.on_train_batch_end = die
    train_run(tokens=STEPS * 520, **changes)


def run_until(*arguments, **changes):
    """The exit code of train_until in its process."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["pipelines.train.core.trainer"])
    process = processes.Process(target=train_until, args=arguments, kwargs=changes)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.slow
def test_twenty_kills_leave_the_same_weights_and_one_run_with_each_step_once(workspace):
    def exit_code(step):
        return run_until(workspace, step)

    for step in sorted(random.Random(0).sample(range(1, STEPS), 20)):
        assert exit_code(step) == -signal.SIGKILL
    assert len(list((workspace / "resume" / "smoke" / RUN).glob("*.ckpt"))) == 2
    assert exit_code(NEVER) == 0
    killed = outcome()
    client, (run,) = tracked_runs()
    points = client.get_metric_history(run.info.run_id, "train/ce_nats")
    assert [point.step for point in points] == list(range(1, STEPS + 1))
    assert run.info.status == "FINISHED"
    assert not any(record.pending() for record in records())

    shutil.rmtree(workspace / "resume")
    assert exit_code(NEVER) == 0
    uninterrupted = outcome()
    assert same(killed[0], uninterrupted[0])
    assert losses(killed[1]) == losses(uninterrupted[1])


@pytest.mark.slow
def test_kills_on_every_segment_leave_the_same_budgets(workspace):
    """On the trunk, at its end, in a decay and at its end."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["models"]["target_small"]["optim"]["schedule"] = "wsd"
    Path("params.yaml").write_text(yaml.safe_dump(params))
    budgets = [20 * 520, 40 * 520]

    def outcomes():
        paths = [checkpoint_path("smoke", RUN, tokens) for tokens in (*budgets, None)]
        return [read_checkpoint(path)[0]["state_dict"] for path in paths]

    def exit_code(step, segment=0):
        return run_until(workspace, step, segment, budgets=budgets)

    for step, segment in [(7, 0), (16, 0), (18, 0), (20, 0), (30, 0), (32, 20), (40, 20), (60, 40)]:
        assert exit_code(step, segment) == -signal.SIGKILL, (step, segment)
    assert exit_code(NEVER) == 0
    killed = outcomes(), outcome()[1]
    shutil.rmtree(workspace / "resume")
    assert exit_code(NEVER) == 0
    assert all(map(same, killed[0], outcomes()))
    assert losses(killed[1]) == losses(outcome()[1])
