"""Callbacks that are called once per optimizer step."""

from typing import Any

import lightning as L


class StepCallback(L.Callback):
    """Calls ``on_step`` once per optimizer step, however many micro-batches that takes."""

    step: int

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.step = trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step > self.step:
            self.step = trainer.global_step
            self.on_step(trainer)

    def on_step(self, trainer: L.Trainer) -> None:
        """Called after each optimizer step."""
