"""A training that dies in this process, at a step of its choice."""

from contextlib import contextmanager

import pytest

from pipelines.train.core.callbacks import Checkpoints


def at_step(patch, step, act):
    """Have every process call ``act`` with its checkpoints and its trainer after a step."""
    inherited = Checkpoints.on_step

    def on_step(self, trainer):
        inherited(self, trainer)
        if self.step == step:
            act(self, trainer)

    patch.setattr(Checkpoints, "on_step", on_step)


@contextmanager
def killed(step, checkpoint=None, segment=None):
    """What trains inside writes a checkpoint every step, the last at ``checkpoint`` (or ``step``),
    and dies once its journal has ``step``, in the segment of so many steps if one is named.
    """

    def die(checkpoints, trainer):
        if segment in (None, trainer.max_steps):
            raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(Checkpoints, "agreed", lambda self, *_: self.step <= (checkpoint or step))
        at_step(patch, step, die)
        yield
