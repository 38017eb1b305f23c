"""A run that is killed, again and again, ends as if nothing had happened."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml

from pipelines.artifacts.checkpoint import read_checkpoint
from pipelines.artifacts.paths import checkpoint_path
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.curve_callback import CurveCallback
from tests.support.training import RUN, losses, outcome, same, tracked_runs, train_run

STEPS, BUDGETS = 20, [8 * 520, 14 * 520]
DECAYS = [2, 3]  # a fifth of 8 and 14; steps that are taken beside those of the trunk
NEVER = -1


def train_until(folder, step, segment):
    """In a process of its own: train with a checkpoint every step, to SIGKILL after ``step`` of
    that segment, before its checkpoint. Writes down the steps taken.
    """
    os.chdir(folder)
    torch.set_num_threads(1)  # as conftest.py does: sums of two threads round in another way
    fit_module.CHECKPOINT_SECONDS = 0.0
    inherited = CurveCallback.on_train_batch_end

    def die(self, trainer, *rest):
        inherited(self, trainer, *rest)
        with open("steps", "a") as file:
            print(trainer.global_step, file=file)
        if (trainer.global_step, trainer.max_steps) == (step, segment):
            os.kill(os.getpid(), signal.SIGKILL)

    CurveCallback.on_train_batch_end = die
    train_run(budgets=BUDGETS)


@pytest.mark.slow
def test_kills_on_every_segment_lose_and_repeat_nothing(workspace):
    """On the trunk, at its end, in a decay and at its end; MLflow has one run with each step."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["models"]["target_small"]["optim"]["schedule"] = "wsd"
    Path("params.yaml").write_text(yaml.safe_dump(params))

    def exit_code(step=NEVER, segment=STEPS):
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload(["pipelines.train.core.trainer"])
        process = processes.Process(target=train_until, args=(workspace, step, segment))
        process.start()
        process.join()
        return process.exitcode

    def outcomes():
        paths = [checkpoint_path("smoke", RUN, tokens) for tokens in (*BUDGETS, None)]
        return [read_checkpoint(path)[0]["state_dict"] for path in paths]

    kills = [(3, 8), (6, 8), (7, 8), (8, 8), (13, 14), (20, 20)]
    for step, segment in kills:
        assert exit_code(step, segment) == -signal.SIGKILL, (step, segment)
    assert len(list(Path("resume/smoke", RUN).glob("*.ckpt"))) == 2
    assert exit_code() == 0
    assert len(Path("steps").read_text().splitlines()) == STEPS + sum(DECAYS) + len(kills)
    weights, (_, rows) = outcomes(), outcome()
    client, (run,) = tracked_runs()
    points = client.get_metric_history(run.info.run_id, "train/ce_nats")
    assert [point.step for point in points] == list(range(1, STEPS + 1))
    assert run.info.status == "FINISHED"

    shutil.rmtree("resume")
    assert exit_code() == 0
    assert all(map(same, weights, outcomes()))
    assert losses(rows) == losses(outcome()[1])
