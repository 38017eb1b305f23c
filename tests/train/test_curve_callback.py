"""What a row of the curve has, where it ends, and who hears of it."""

from types import SimpleNamespace

import pytest
import torch

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.checkpoint import HISTORY
from pipelines.config.derived import Budget
from pipelines.train.core import callbacks
from pipelines.train.core.callbacks import CurveCallback
from pipelines.train.core.segments import Segment
from tests.support.mutants import rejects

BATCH = 8  # tokens
NAMES = ("loss", "ce", "kl", "hinge", "grad_norm")
SEGMENT = Segment(Budget(80, 10, True), 7, {})  # leaves the trunk at step 7


def make(watch=None, kappa=0.0):
    """A row ends every fourth step, and where the trunk is left."""
    return CurveCallback(SEGMENT, 4, {7}, BATCH, kappa, watch)


def fake_trainer(logged, world_size=1):
    """A trainer in whose other workers all that is logged is larger by 4."""
    values = {name: [torch.tensor(value) for value in each] for name, each in logged.items()}
    strategy = SimpleNamespace(
        root_device=torch.device("cpu"), reduce=lambda values, reduce_op: values + 2
    )
    groups = [{"lr": 0.1}, {"lr": 0.2}]
    return SimpleNamespace(
        lightning_module=SimpleNamespace(logged=values, norms=[]),
        strategy=strategy,
        world_size=world_size,
        optimizers=[SimpleNamespace(param_groups=groups)],
        global_step=0,
    )


@pytest.fixture
def train(monkeypatch):
    """Take ten steps, each of two seconds and two micro-batches, whose mean is the step's number
    whatever is logged.
    """

    def take_steps(callback, world_size=1):
        monkeypatch.setattr(callbacks, "perf_counter", lambda: 2.0 * trainer.global_step)
        trainer = fake_trainer({}, world_size)
        logged = trainer.lightning_module.logged
        callback.on_train_start(trainer, trainer.lightning_module)
        for step in range(1, 11):
            for value, steps in ((step - 0.5, step - 1), (step + 0.5, step)):
                for name in NAMES:
                    logged.setdefault(name, []).append(torch.tensor(value))
                trainer.global_step = steps
                callback.on_train_batch_end(trainer)
        return trainer

    return take_steps


@rejects("CurveCallback.make_row: «.mean()→[-1]» for", "of the steps of a row the last alone")
@rejects(
    "CurveCallback.make_row: = «self.steps_since→self.step» *",
    "the speed of a row from the beginning on",
)
def test_a_row_is_the_mean_of_its_steps_and_those_of_the_trunk_alone_are_told(train):
    """KL in bits, the rest in nats, speed in tokens of the row's own steps."""
    watched, recorded = [], []
    callback = make(watched.append)
    callback.record = recorded.append
    train(callback)
    rows = callback.rows
    assert [row.step for row in rows] == [4, 7, 8]
    assert [row.tokens for row in rows] == [32, 56, 64]
    means = [2.5, 6, 8]
    for name in ("loss_nats", "ce_nats", "hinge_nats"):
        assert [getattr(row, name) for row in rows] == means
    assert [row.kl_bits * LN2 for row in rows] == pytest.approx(means)
    assert [row.others for row in rows] == [{"grad_norm": mean} for mean in means]
    assert [row.tokens_per_second for row in rows] == [BATCH / 2] * 3
    assert [row.learning_rate for row in rows] == [0.1] * 3
    assert watched == recorded == [row.figures() for row in rows[:2]]


def test_time_that_is_left_out_counts_for_no_speed(train):
    """Four of the eight seconds since the last row."""
    callback = make()
    trainer = train(callback)
    trainer.global_step = 12
    callback.leave_out(4.0)
    callback.steps_since = 4
    trainer.lightning_module.logged |= {name: [torch.tensor(1.0)] for name in ("loss", "ce")}
    assert callback.make_row(trainer).tokens_per_second == 4 * BATCH / (8 - 4)


def test_rows_are_means_over_all_workers(train):
    callback = make()
    train(callback, world_size=2)
    assert [row.loss_nats for row in callback.rows] == [4.5, 8, 10]


@rejects("CurveCallback.on_load_checkpoint: «module.norms→_» =", "norms that a resumed run forgets")
def test_rows_and_what_is_logged_of_the_next_go_on_from_a_checkpoint(train):
    """As means over the workers; whoever records hears of earlier rows once more."""
    callback, again, recorded = *(make() for _ in "12"), []
    trainer = train(callback, world_size=2)
    trainer.lightning_module.norms, checkpoint = [3.0], {}
    callback.on_save_checkpoint(trainer, trainer.lightning_module, checkpoint)
    assert {*checkpoint} == {HISTORY}
    other = fake_trainer({})
    again.on_load_checkpoint(other, other.lightning_module, checkpoint)
    again.record = recorded.append
    again.on_train_start(other, other.lightning_module)
    assert recorded == [row.figures() for row in callback.rows[:2]]
    assert other.lightning_module.norms == [3.0]
    pending = [10.5, 11.5, 11.5, 12.5]
    assert other.lightning_module.logged == dict.fromkeys(NAMES, pending)


def test_skipped_steps_are_counted():
    callback = make()
    trainer = fake_trainer({"loss": [1.0], "ce": [1.0], "skipped_steps": [0.0, 1.0, 0.0, 1.0, 0.0]})
    callback.on_train_start(trainer, trainer.lightning_module)
    assert callback.make_row(trainer).others == {"skipped_steps": 2}


@pytest.mark.parametrize(("kappa", "share"), [(1.25, 0.5), (0.0, None)])
def test_a_bit_is_in_use_above_a_tenth_of_its_share_of_kappa(kappa, share):
    """Of four, whose KL is 1 / 32 bits on the limit; without κ there is no limit."""
    callback = make(kappa=kappa)
    kl = torch.tensor([1 / 16, 0.033, 1 / 32, 1 / 64], dtype=torch.float64) * LN2
    trainer = fake_trainer({"loss": [1.0], "ce": [1.0]})
    trainer.lightning_module.logged["kl_of_bits"] = [0.5 * kl, 1.5 * kl]
    callback.on_train_start(trainer, trainer.lightning_module)
    assert callback.make_row(trainer).others.get("bits_in_use") == share
