"""What happens after each optimizer step: a row of the training curve, a checkpoint.

CurveCallback averages what the module logs into rows. Checkpoints decides when checkpoints are
written, what of ours they hold, and which are deleted; WholeFiles writes them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.checkpoint import ENTRY, HISTORY, PADDING, Manifest, checkpoints_in
from pipelines.artifacts.curve import Curve, CurveRow, row_of
from pipelines.host.files import replace_file
from pipelines.train.core.segments import Segment, budget_path


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


Watch = Callable[[dict[str, float]], None]


@dataclass(eq=False)
class CurveCallback(StepCallback):
    """Averages what the module has logged over ``every`` steps, their micro-batches and all workers
    into a row, and keeps the rows in the checkpoint.

    A row ends at each of ``ends``, too. Rows of the trunk and of the last segment, in which each
    step of the run comes once, go to ``record`` and to ``watch``. A bit of z is in use if its KL is
    above a tenth of its even share of κ, the limit below which a latent has collapsed.
    """

    segment: Segment
    every: int
    ends: set[int]
    batch_tokens: int
    kappa: float  # KL of a latent in use, bits per token (see kl_of_use); 0 if not known
    watch: Watch | None = None
    record: Watch | None = None  # is called with a resumed run's earlier rows, too
    rows: Curve = field(default_factory=list)
    steps_since: int = 0  # steps since the last row ended

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

    def leave_out(self, seconds: float) -> None:
        """Leave ``seconds`` out of the time that the steps of the current row take."""
        self.since += seconds

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
        tokens_per_second = self.steps_since * self.batch_tokens / (now - self.since)
        self.since = now
        self.steps_since = 0
        return CurveRow(
            step=self.step,
            tokens=self.step * self.batch_tokens,
            loss_nats=mean.pop("loss"),
            ce_nats=mean.pop("ce"),
            kl_bits=mean.pop("kl") / LN2 if "kl" in mean else None,
            hinge_nats=mean.pop("hinge", None),
            learning_rate=trainer.optimizers[0].param_groups[0]["lr"],
            tokens_per_second=tokens_per_second,
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


class Checkpoints(StepCallback):
    """Writes a checkpoint now and then, and at the end; keeps the newest two, so that no checkpoint
    is the only one.

    Two are at least ``seconds`` apart, and twenty times as long as writing takes; with 0, one
    follows each step (with several workers, each tenth). One more is written where a decay leaves
    the trunk, and weights alone where a smaller budget ends, before any checkpoint that is past it.
    """

    def __init__(
        self,
        root: Path,
        seconds: float,
        segment: Segment,
        manifest: Manifest,
        padding: dict[str, Tensor],
    ) -> None:
        """``padding`` is the parent's; a checkpoint that training goes on from replaces it."""
        self.root = root
        self.seconds = seconds
        self.segment = segment
        self.manifest = manifest
        self.padding = padding
        self.written_at = perf_counter()
        self.wait = seconds

    def on_save_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint |= self.entries()

    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = {ENTRY: self.manifest.entry}
        if self.padding:
            entries[PADDING] = self.padding
        return entries

    def on_load_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.padding = checkpoint.get(PADDING, {})

    def on_step(self, trainer: L.Trainer) -> None:
        if self.step in self.segment.keep:
            self.keep(trainer, budget_path(self.root, self.segment.keep[self.step]))
        leaves_trunk = self.step == self.segment.trunk and not self.segment.last
        if leaves_trunk or self.agreed(trainer, perf_counter() - self.written_at >= self.wait):
            self.save(trainer)

    def agreed(self, trainer: L.Trainer, due: bool) -> bool:
        """What rank 0's clock says; asked every tenth step, because it costs all workers time."""
        if trainer.world_size == 1:
            return due
        return self.step % 10 == 0 and trainer.strategy.broadcast(due)

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if self.segment.last:  # else the weights are all that is wanted, and are there
            self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        start = perf_counter()
        folder = self.segment.folder(self.root, trainer.global_step)
        target = folder / f"{trainer.global_step:08d}.ckpt"
        if trainer.is_global_zero:
            for cut_short in folder.glob("*.partial"):  # by a kill
                cut_short.unlink()
        trainer.save_checkpoint(target, weights_only=False)
        self.written_at = perf_counter()
        if self.seconds:
            self.wait = max(self.seconds, 20 * (self.written_at - start))
        if trainer.is_global_zero:
            # later ones are there where a smaller budget was lost, and is trained for again
            known = [
                path for path in checkpoints_in(folder) if int(path.stem) <= trainer.global_step
            ]
            for old in known[:-2]:
                old.unlink()

    def keep(self, trainer: L.Trainer, target: Path) -> None:
        """Write only what the model can be made from again."""
        state = trainer.strategy.lightning_module_state_dict()
        trainer.strategy.save_checkpoint({"state_dict": state, **self.entries()}, target)
        trainer.strategy.barrier()


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints beside their place first, so that a file is whole or absent.

    Lightning writes to $TMPDIR and copies from there to another file system. If the disk fills up
    or the process dies, half a file stays under the checkpoint's name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint; raises OSError."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # about a position: hides what the file said
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
