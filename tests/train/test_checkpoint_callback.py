"""When a checkpoint is due, and which stay."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pipelines.artifacts.checkpoint import ENTRY, PADDING
from pipelines.config.derived import Budget
from pipelines.train.core import callbacks
from pipelines.train.core.callbacks import Checkpoints
from pipelines.train.core.segments import Segment, budget_path
from tests.support.mutants import rejects

STEPS = 10**8 + 1
CLOCK = SimpleNamespace(now=100.0)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Checkpoints of a training of STEPS steps, of whose writing each takes two seconds."""
    monkeypatch.setattr(callbacks, "perf_counter", lambda: CLOCK.now)

    def save(path, weights_only):
        assert not weights_only
        CLOCK.now += 2.0
        path.touch()

    def made(seconds=0.0, trunk=STEPS, keep=(), **settings):
        segment = Segment(Budget(520, STEPS, True), trunk, dict(keep))
        callback = Checkpoints(tmp_path, seconds, segment, Mock(entry="entry"), {})
        fake = {"world_size": 1, "is_global_zero": True, "global_step": 0} | settings
        trainer = Mock(save_checkpoint=Mock(side_effect=save), **fake)
        callback.on_train_start(trainer, Mock())
        return callback, trainer

    return made


def after_step(callback, trainer, step, seconds):
    """Whether a checkpoint is written after a step of two micro-batches, so many seconds after what
    was before.
    """
    CLOCK.now += seconds
    trainer.save_checkpoint.reset_mock()
    callback.on_train_batch_end(trainer)
    assert not trainer.save_checkpoint.called
    trainer.global_step = step
    callback.on_train_batch_end(trainer)
    return trainer.save_checkpoint.called


@rejects("Checkpoints.on_load_checkpoint: «self.padding =→»", "padding lost by a resumed training")
def test_a_checkpoint_has_the_manifest_and_the_padding_of_the_parent(make):
    """Also that of a training which goes on from one; most parents have none."""
    padding, (callback, trainer) = {"rows": "padding"}, make()
    for read, kept in (({}, {}), ({PADDING: padding}, {PADDING: padding})):
        callback.on_load_checkpoint(trainer, Mock(), read)
        callback.on_save_checkpoint(trainer, Mock(), written := {"state_dict": "weights"})
        assert written == {"state_dict": "weights", ENTRY: "entry", **kept}


@pytest.mark.parametrize(
    ("seconds", "waits"), [(10.0, [9.5, 0.5, 39.5, 0.5]), (50.0, [49.5, 0.5] * 2), (0.0, [0.0] * 4)]
)
def test_a_checkpoint_is_due_after_the_seconds_and_twenty_times_what_writing_took(
    make, seconds, waits
):
    """After each step if there are no seconds."""
    callback, trainer = make(seconds)
    written = [after_step(callback, trainer, step, wait) for step, wait in enumerate(waits, 1)]
    assert written == [not seconds, True] * 2


def test_a_checkpoint_is_written_where_the_trunk_is_left_and_at_the_end_of_the_last_segment(make):
    """And of no other segment, of which the weights alone stay."""
    for trunk, wanted in ((2, [False, True, False]), (STEPS, [False] * 3)):
        callback, trainer = make(seconds=1e9, trunk=trunk)
        assert [after_step(callback, trainer, step, 1.0) for step in (1, 2, 3)] == wanted
        trainer.save_checkpoint.reset_mock()
        callback.on_train_end(trainer, Mock())
        assert trainer.save_checkpoint.called == (trunk == STEPS)


def test_weights_and_manifest_are_kept_where_a_smaller_budget_ends(make, tmp_path):
    callback, trainer = make(seconds=1e9, keep={2: 5})
    kept = trainer.strategy.save_checkpoint
    state = trainer.strategy.lightning_module_state_dict()
    for step in (1, 2, 3):
        kept.reset_mock()
        assert not after_step(callback, trainer, step, 1.0)
        assert kept.called == (step == 2)
        if kept.called:
            content = {"state_dict": state, ENTRY: "entry"}
            kept.assert_called_once_with(content, budget_path(tmp_path, 5))


def test_several_workers_ask_for_the_time_at_every_tenth_step_alone():
    """Each step's question would cost all of them time; one process asks nobody."""
    alone, several = (Mock(world_size=n) for n in (1, 2))
    several.strategy.broadcast = lambda due: due
    steps = [SimpleNamespace(step=step) for step in range(1, 31)]
    asked = [each.step for each in steps if Checkpoints.agreed(each, several, True)]
    assert asked == [10, 20, 30]
    assert all(Checkpoints.agreed(each, alone, True) for each in steps)
    assert not any(Checkpoints.agreed(each, t, False) for each in steps for t in (alone, several))


@rejects(
    "Checkpoints.save: «int(path.stem) <= trainer.global_step→path <= target»", "the newest deleted"
)
def test_the_newest_two_checkpoints_stay_and_what_was_cut_short_goes(make, tmp_path):
    """Also where steps have more digits than a name has room for; later ones are not known. The
    first worker alone deletes.
    """
    cut_short = tmp_path / "00000004.partial"
    for first, gone in ((False, {}), (True, {99_999_997, 99_999_998})):
        callback, trainer = make(is_global_zero=first)
        cut_short.touch()
        for step in (99_999_997, 99_999_998, STEPS + 1):
            (tmp_path / f"{step:08d}.ckpt").touch()
        for step in (99_999_999, 10**8):
            assert after_step(callback, trainer, step, 1.0)
        left = {int(path.stem) for path in tmp_path.glob("*.ckpt")}
        assert left == {99_999_997, 99_999_998, 99_999_999, 10**8, STEPS + 1} - {*gone}
        assert cut_short.exists() != first
