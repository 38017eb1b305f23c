"""Runs that are killed, again and again, end as if nothing had happened."""

import multiprocessing
import os
import random
import shutil
import signal

import pytest
import torch
from training import RUN, losses, outcome, same, tracked_runs, train_run

from pipelines import fit as fit_module
from pipelines.callbacks import History
from pipelines.record import records

STEPS, NEVER = 60, -1


def train_until(folder, step, leg=0, **changes):
    """In a process of its own: train with a checkpoint every step, to SIGKILL after ``step`` if the
    leg under way ends after ``leg``.
    """
    os.chdir(folder)
    torch.set_num_threads(1)  # as conftest.py does: sums of two threads round in another way
    fit_module.CHECKPOINT_SECONDS = 0.0
    inherited = History.on_train_batch_end

    def die(self, trainer, *rest):
        inherited(self, trainer, *rest)
        if trainer.global_step == step and trainer.max_steps > leg:
            os.kill(os.getpid(), signal.SIGKILL)

    History.on_train_batch_end = die
    train_run(tokens=STEPS * 520, **changes)


@pytest.mark.slow
def test_twenty_kills_leave_the_same_weights_and_one_run_with_each_step_once(workspace):
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["pipelines.fit"])

    def exit_code(step):
        process = processes.Process(target=train_until, args=(workspace, step))
        process.start()
        process.join()
        return process.exitcode

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
