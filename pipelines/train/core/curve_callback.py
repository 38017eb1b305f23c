"""The training curve: what the module logs, averaged over the steps of a row."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import lightning as L
import torch
from torch import Tensor

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.checkpoint import HISTORY
from pipelines.artifacts.curve import Curve, CurveRow, row_of
from pipelines.train.core.segments import Segment
from pipelines.train.core.step_callback import StepCallback

Watch = Callable[[dict[str, float]], None]


class CurveCallback(StepCallback):
    """Averages what the module has logged over ``every`` steps, their micro-batches and all workers
    into a row, and keeps the rows in the checkpoint.

    A row ends at each of ``ends``, too. Rows of the trunk and of the last segment, in which each
    step of the run comes once, go to ``record`` and to ``watch``. A bit of z is in use if its KL is
    above a tenth of its even share of κ, the limit below which a latent has collapsed.
    """

    def __init__(
        self,
        segment: Segment,
        every: int,
        ends: set[int],
        batch_tokens: int,
        watch: Watch | None,
        kappa: float,
    ) -> None:
        """``kappa``: KL of a latent in use, bits per token (see kl_of_use); 0 if not known."""
        self.kappa = kappa
        self.segment, self.every, self.ends = segment, every, ends
        self.batch_tokens, self.watch = batch_tokens, watch
        self.record: Watch | None = None  # called with a resumed run's earlier rows, too
        self.rows: Curve = []
        self.steps_since = 0

    def on_save_checkpoint(
        self, trainer: L.Trainer, module: Any, checkpoint: dict[str, Any]
    ) -> None:
        for name, values in module.logged.items():
            module.logged[name] = over_workers(trainer, values)
        rows = [row.figures() for row in self.rows]
        checkpoint[HISTORY] = {"rows": rows, "pending": module.logged, "norms": module.norms}

    def on_load_checkpoint(
        self, trainer: L.Trainer, module: Any, checkpoint: dict[str, Any]
    ) -> None:
        self.rows = [row_of(figures) for figures in checkpoint[HISTORY]["rows"]]
        module.logged = checkpoint[HISTORY]["pending"]
        module.norms = checkpoint[HISTORY]["norms"]

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        super().on_train_start(trainer, module)
        self.since = perf_counter()
        for row in self.rows:
            self.log_row(row)

    def on_step(self, trainer: L.Trainer) -> None:
        self.steps_since += 1
        if self.step % self.every and self.step not in self.ends:
            return
        row = self.make_row(trainer)
        self.rows.append(row)
        self.log_row(row)
        if self.watch and self.step <= self.segment.trunk:
            self.watch(row.figures())

    def make_row(self, trainer: L.Trainer) -> CurveRow:
        logged: dict[str, list[Tensor]] = trainer.lightning_module.logged  # type: ignore[assignment]
        device = trainer.strategy.root_device  # values from a checkpoint are on the CPU
        stacks = {k: torch.stack([v.to(device) for v in vs]).double() for k, vs in logged.items()}
        logged.clear()
        bits = stacks.pop("kl_of_bits", None)
        means = [stack.mean() for stack in stacks.values()]
        mean = dict(zip(stacks, map(float, over_workers(trainer, means)), strict=True))
        if bits is not None and self.kappa:
            kl = torch.stack(over_workers(trainer, list(bits.mean(0)))) / LN2
            mean["bits_in_use"] = (kl > self.kappa / 10 / len(kl)).double().mean().item()
        if "skipped_steps" in mean:
            mean["skipped_steps"] = round(mean["skipped_steps"] * len(stacks["skipped_steps"]))
        now = perf_counter()
        seconds, steps = now - self.since, self.steps_since
        self.since, self.steps_since = now, 0
        return CurveRow(
            step=self.step,
            tokens=self.step * self.batch_tokens,
            loss_nats=mean.pop("loss"),
            ce_nats=mean.pop("ce"),
            kl_bits=mean.pop("kl") / LN2 if "kl" in mean else None,
            hinge_nats=mean.pop("hinge", None),
            learning_rate=trainer.optimizers[0].param_groups[0]["lr"],
            tokens_per_second=steps * self.batch_tokens / seconds,
            others=mean,
        )

    def log_row(self, row: CurveRow) -> None:
        if self.record and row.step <= self.segment.trunk:
            self.record(row.figures())


def over_workers(trainer: L.Trainer, values: list[Tensor]) -> list[Tensor]:
    """The mean of each value over all workers."""
    if trainer.world_size == 1:
        return values
    stacked = torch.stack([value.to(trainer.strategy.root_device) for value in values])
    return list(trainer.strategy.reduce(stacked, reduce_op="mean"))
