"""Several workers that share each batch: the figures of one process, and errors in one line."""

import shutil
from pathlib import Path

import pytest
import torch

from pipelines.config import derived
from pipelines.config.load import load_experiment
from pipelines.config.schema import Strategy
from pipelines.host.errors import UserError
from pipelines.train.core import module
from pipelines.train.core.batches import StepBatches
from pipelines.train.core.trainer import Shards
from tests.cluster.conftest import train_on_ray
from tests.support.kills import at_step
from tests.support.training import RUN, check_close, train_run
from tests.train.test_budgets import change, published

STOPPED = "stopped here"
FSDP = {"workers": 2, "strategy": Strategy.fsdp}


def check_weights(weights, expected):
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(weights[name], value, rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("name", ["baseline", RUN])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_neither_strategy_nor_micro_batches_change_curve_or_weights(forked, name, strategy):
    weights, rows = train_on_ray(name, workers=2, strategy=strategy, accumulate=2)
    shutil.rmtree("resume")
    expected = train_run(name)
    check_close(rows, expected[1])
    check_weights(weights, expected[0])


def test_every_segment_of_a_run_with_budgets_is_that_of_one_process(forked):
    """Of a sharded model, whose checkpoints rank 0 gathers."""
    change(schedule="wsd")
    _, rows = train_on_ray(**FSDP)
    budgets = published()
    shutil.rmtree("resume")
    shutil.rmtree("checkpoints")
    check_close(rows, train_run()[1])
    for tokens, expected in published().items():
        check_weights(budgets[tokens], expected)


def stop_at(monkeypatch, step, train, **compute):
    """Train to a checkpoint at a step, which is returned."""

    def stop(checkpoints, trainer):
        checkpoints.save(trainer)
        raise UserError(STOPPED)

    with monkeypatch.context() as patch:
        at_step(patch, step, stop)
        with pytest.raises(UserError, match=STOPPED):
            train(**compute)
    newest = max(Path("resume/smoke", RUN).glob("*/*.ckpt"))
    assert int(newest.stem) == step
    return newest


def test_training_goes_on_in_one_process_or_any_number_of_shards(forked, monkeypatch):
    _, expected = train_run()
    shutil.rmtree("resume")
    stop_at(monkeypatch, 5, train_run)
    stop_at(monkeypatch, 10, train_on_ray, workers=4, strategy=Strategy.fsdp)
    stop_at(monkeypatch, 15, train_on_ray, **FSDP)
    check_close(train_run()[1], expected)


def test_a_gradient_that_is_not_finite_is_one_line_with_the_windows_of_all_workers(
    forked, monkeypatch
):
    inherited, losses = module.training_loss, []

    def poisoned(*arguments):
        losses.append(inherited(*arguments))
        losses[-1].total = losses[-1].total * (float("nan") if len(losses) == 3 else 1)
        return losses[-1]

    monkeypatch.setattr(module, "training_loss", poisoned)
    with pytest.raises(UserError, match="not finite at step 3") as caught:
        train_on_ray(workers=2)
    experiment = load_experiment()
    run = experiment.runs[RUN]
    windows = Shards(Path("data/tokens") / run.data).windows(
        "train", derived.model_config(experiment, run).context
    )
    whole = StepBatches(windows, 8, 20, run.seed)
    assert str(whole[2]["windows"].tolist()) in str(caught.value)
