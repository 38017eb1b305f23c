"""Decides when and how checkpoints are written, what of ours they hold, and which are deleted."""

from pathlib import Path
from time import perf_counter
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from pipelines.artifacts.checkpoint import ENTRY, PADDING, Manifest, numbered
from pipelines.common.atomic_files import replace_file
from pipelines.train.core.segments import Segment, budget_path
from pipelines.train.core.step_callback import StepCallback


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
        self.root, self.seconds, self.segment = root, seconds, segment
        self.manifest, self.padding = manifest, padding
        self.written, self.wait = perf_counter(), seconds

    def on_save_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint |= self.entries()

    def entries(self) -> dict[str, Any]:
        padding = {PADDING: self.padding} if self.padding else {}
        return {ENTRY: self.manifest.entry, **padding}

    def on_load_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.padding = checkpoint.get(PADDING, {})

    def on_step(self, trainer: L.Trainer) -> None:
        if self.step in self.segment.keep:
            self.keep(trainer, budget_path(self.root, self.segment.keep[self.step]))
        leaves_trunk = self.step == self.segment.trunk and not self.segment.last
        if leaves_trunk or self.agreed(trainer, perf_counter() - self.written >= self.wait):
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
        self.written = perf_counter()
        if self.seconds:
            self.wait = max(self.seconds, 20 * (self.written - start))
        if trainer.is_global_zero:
            # later ones are there where a smaller budget was lost, and is trained for again
            known = [path for path in numbered(folder) if int(path.stem) <= trainer.global_step]
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
