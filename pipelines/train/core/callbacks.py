"""What happens around the training steps: averaging and logging figures, and showing them."""

import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning as L
import torch
from torch import Tensor
from tqdm import tqdm

from ftmodel.model.objective import LN2, collapsed
from pipelines.artifacts.checkpoint import ENTRY, HISTORY, Card, remove
from pipelines.common.console import say
from pipelines.tracking.run import Tracking
from pipelines.train.core.segments import Leg, kept_path


class StepCallback(L.Callback):
    """Calls ``on_step`` once an optimizer step, however many micro-batches that takes."""

    step = 0

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.step = trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, *_: Any
    ) -> None:
        self.on_micro_batch(outputs)
        if trainer.global_step > self.step:
            self.step = trainer.global_step
            self.on_step(trainer)

    def on_micro_batch(self, outputs: dict[str, Tensor]) -> None:
        """After each micro-batch."""

    def on_step(self, trainer: L.Trainer) -> None:
        """After each optimizer step."""


class History(StepCallback):
    """Averages losses over ``every`` steps into rows; keeps them in the checkpoint and in MLflow.

    A row ends at each of ``ends``, too, so that none is of the trunk and of a decay. MLflow and
    ``watch`` get those of the trunk and of the last leg: each step of the run once.

    A row: step (of its last batch, from 1), tokens seen, loss, ce and hinge in nats per token,
    kl in bits per token, learning rate, tokens per second. Losses are means over all workers.
    """

    def __init__(
        self,
        tracking: Tracking | None,
        card: Card,
        steps: int,
        leg: Leg,
        ends: set[int],
        every: int,
        batch_tokens: int,
        watch: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        self.tracking, self.card, self.steps = tracking, card, steps
        self.leg, self.ends = leg, ends
        self.every, self.batch_tokens, self.watch = every, batch_tokens, watch
        self.rows: list[dict[str, float]] = []
        self.pending: list[dict[str, Tensor]] = []  # of micro-batches, not yet in a row
        self.since, self.steps_since = 0.0, 0
        self.warned = False

    def on_save_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[ENTRY] = self.entry()
        self.pending = [self.over_workers(trainer, losses) for losses in self.pending]
        checkpoint[HISTORY] = {"rows": self.rows, "pending": self.pending}

    def entry(self) -> dict[str, Any]:
        """The card, as it is written."""
        run_id = self.tracking.run_id if self.tracking else ""
        return {**vars(self.card), "mlflow_run_id": run_id or None}

    def on_load_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.rows, self.pending = checkpoint[HISTORY]["rows"], checkpoint[HISTORY]["pending"]

    @staticmethod
    def over_workers(trainer: L.Trainer, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Means of losses over all workers."""
        if trainer.world_size == 1:
            return losses
        stacked = torch.stack(list(losses.values())).to(trainer.strategy.root_device)
        return dict(zip(losses, trainer.strategy.reduce(stacked, reduce_op="mean"), strict=True))

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        super().on_train_start(trainer, module)
        self.since = perf_counter()

    def on_micro_batch(self, outputs: dict[str, Tensor]) -> None:
        self.pending.append({k: v.detach() for k, v in outputs.items() if k != "loss"})

    def on_step(self, trainer: L.Trainer) -> None:
        self.steps_since += 1
        if self.step % self.every and self.step not in self.ends:
            return
        device = trainer.strategy.root_device  # those from a checkpoint are on the CPU
        means = {
            name: torch.stack([p[name].to(device) for p in self.pending]).double().mean()
            for name in self.pending[0]
        }
        mean = {name: float(value) for name, value in self.over_workers(trainer, means).items()}
        now = perf_counter()
        row = {
            "step": self.step,
            "tokens": self.step * self.batch_tokens,
            "loss_nats": mean["total"],
            "ce_nats": mean["ce"],
        }
        if "kl" in mean:
            row |= {"kl_bits": mean["kl"] / LN2, "hinge_nats": mean["hinge"]}
        row |= {
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
            "tokens_per_second": self.steps_since * self.batch_tokens / (now - self.since),
        }
        self.rows.append(row)
        self.pending, self.since, self.steps_since = [], now, 0
        if self.step > self.leg.trunk:
            return
        if self.tracking and len(self.rows) % 20 == 0:
            self.tracking.log_rows(self.rows)
        self.watch_latent()
        if self.watch:
            self.watch(row)

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if self.tracking:
            self.tracking.log_rows([r for r in self.rows if r["step"] <= self.leg.trunk])

    def watch_latent(self) -> None:
        """Say once, while it can still be stopped, that the latent has collapsed."""
        kappa = self.card.run["kappa_bits"]
        if kappa is None or self.tracking is None or self.warned:
            return
        kl = [row["kl_bits"] for row in self.rows]
        if collapsed(kl, kappa, of=-(-self.steps // self.every)):
            self.warned = True
            self.tracking.tag("collapsed", "yes")
            say(
                f"{self.card.run_name}: the latent has collapsed: for a third of the training, KL "
                f"was under a tenth of κ = {kappa:g} bits (now {kl[-1]:.4f})"
            )


class Checkpoints(StepCallback):
    """Writes a checkpoint now and then, and at the end; keeps the newest two, so that none is the
    only one.

    Between two pass at least ``seconds``, and twenty times as long as writing takes; with 0, one
    follows each step (with several workers, each tenth). One more is written where the trunk is
    left, and weights alone where a smaller budget ends: before any checkpoint that is past it.
    """

    def __init__(self, root: Path, seconds: float, leg: Leg, history: History) -> None:
        self.root, self.seconds, self.leg, self.history = root, seconds, leg, history
        self.written, self.took = perf_counter(), 0.0

    def on_step(self, trainer: L.Trainer) -> None:
        if self.step in self.leg.keep:
            self.keep(trainer, kept_path(self.root, self.leg.keep[self.step]))
        wait = max(self.seconds, 20 * self.took) if self.seconds else 0.0
        leaves_trunk = self.step == self.leg.trunk and not self.leg.last
        if leaves_trunk or self.agreed(trainer, perf_counter() - self.written >= wait):
            self.save(trainer)

    def agreed(self, trainer: L.Trainer, due: bool) -> bool:
        """What worker 0's clock says, asked for every tenth step: that costs all of them time."""
        if trainer.world_size == 1:
            return due
        return self.step % 10 == 0 and trainer.strategy.broadcast(due)

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if self.leg.last:  # else the weights are all that is wanted, and kept
            self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        start = perf_counter()
        folder = self.leg.folder(self.root, trainer.global_step)
        target = folder / f"{trainer.global_step:08d}.ckpt"
        if trainer.is_global_zero:
            for cut_short in folder.glob("*.partial"):  # by a kill
                remove(cut_short)
        trainer.save_checkpoint(target, weights_only=False)
        self.written = perf_counter()
        self.took = self.written - start
        if trainer.is_global_zero:
            # later ones are there where a smaller budget was lost, and is trained for again
            for old in [path for path in sorted(folder.glob("*.ckpt")) if path <= target][:-2]:
                remove(old)

    def keep(self, trainer: L.Trainer, target: Path) -> None:
        """Write weights and card."""
        state = trainer.strategy.lightning_module_state_dict()
        entry = self.history.entry()
        trainer.strategy.save_checkpoint({"state_dict": state, ENTRY: entry}, target)
        trainer.strategy.barrier()


class CompileTime(StepCallback):
    """Says what compilation costs at the start: what the first step takes beyond the second."""

    def __init__(self, tracking: Tracking, name: str) -> None:
        self.tracking, self.name = tracking, name
        self.began = 0.0  # a step; what lies between two, such as a checkpoint, is of neither
        self.times: list[float] = []

    def on_train_batch_start(
        self, trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.began = self.began or perf_counter()

    def on_step(self, trainer: L.Trainer) -> None:
        if len(self.times) == 2:
            return
        self.times.append(perf_counter() - self.began)
        self.began = 0.0
        if len(self.times) == 2:
            seconds = max(0.0, self.times[0] - self.times[1])
            self.tracking.log_figures("time", {"compile_seconds": seconds}, self.step)
            say(f"{self.name}: blocks compiled in {seconds:.1f} s (compute.compile)")


class Progress(StepCallback):
    """One line: steps, time left, loss, KL in bits, tokens per second."""

    def __init__(self, history: History, name: str, steps: int) -> None:
        self.history, self.name, self.steps = history, name, steps
        self.bar: tqdm[Any] | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        super().on_train_start(trainer, module)
        in_a_log = not sys.stderr.isatty()
        self.bar = tqdm(
            total=self.steps,
            initial=trainer.global_step,
            desc=self.name,
            bar_format="{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt} left {remaining}{postfix}",
            mininterval=0 if in_a_log else 0.5,
            miniters=max(1, self.steps // 10) if in_a_log else None,
            maxinterval=inf if in_a_log else 10,
        )

    def on_step(self, trainer: L.Trainer) -> None:
        assert self.bar is not None
        if self.history.rows:
            self.bar.set_postfix(self.figures(self.history.rows[-1]), refresh=False)
        self.bar.update()

    def on_train_end(self, *_: Any) -> None:
        assert self.bar is not None
        self.bar.close()

    def on_exception(self, *_: Any) -> None:
        if self.bar is not None:  # else the error's line would stand behind it
            self.bar.close()

    @staticmethod
    def figures(row: dict[str, float]) -> dict[str, str]:
        shown = {"loss": f"{row['loss_nats']:.3f} nats"}
        if "kl_bits" in row:
            shown["KL"] = f"{row['kl_bits']:.3f} bits"
        return shown | {"tokens/s": f"{row['tokens_per_second']:,.0f}"}
