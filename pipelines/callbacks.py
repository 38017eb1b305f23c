"""What happens around the training steps: averaging and logging figures, and showing them."""

import sys
from math import inf
from time import perf_counter
from typing import Any

import lightning as L
from torch import Tensor
from tqdm import tqdm

from ftmodel.objective import LN2
from pipelines.checkpoint import ENTRY, Card
from pipelines.tracking import Tracking


class History(L.Callback):
    """Averages losses over ``every`` steps into rows; keeps them in the checkpoint and in MLflow.

    A row: step (of its last batch, from 1), tokens seen, loss, ce and hinge in nats per token,
    kl in bits per token, learning rate, tokens per second.
    """

    def __init__(self, tracking: Tracking, card: Card, every: int, batch_tokens: int) -> None:
        self.tracking, self.card = tracking, card
        self.every, self.batch_tokens = every, batch_tokens
        self.rows: list[dict[str, float]] = []
        self.pending: list[dict[str, Tensor]] = []
        self.sent = 0  # rows that MLflow has
        self.since = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = state["rows"]

    def on_save_checkpoint(
        self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[ENTRY] = {**vars(self.card), "mlflow_run_id": self.tracking.run_id}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        # a killed run may have sent rows that came after its last checkpoint: send none twice
        last = self.tracking.last_step("train/loss_nats")
        self.sent = sum(row["step"] <= last for row in self.rows)
        self.last_sent_step = last
        self.since = perf_counter()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        module: L.LightningModule,
        outputs: Any,
        batch: Tensor,
        batch_idx: int,
    ) -> None:
        self.pending.append({name: value.detach() for name, value in outputs.items()})
        step = trainer.global_step
        if step % self.every and step != trainer.max_steps:
            return
        mean = {
            name: sum(float(p[name]) for p in self.pending) / len(self.pending)
            for name in self.pending[0]
        }
        now = perf_counter()
        row = {
            "step": step,
            "tokens": step * self.batch_tokens,
            "loss_nats": mean["loss"],
            "ce_nats": mean["ce"],
        }
        if "kl" in mean:
            row |= {"kl_bits": mean["kl"] / LN2, "hinge_nats": mean["hinge"]}
        row |= {
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
            "tokens_per_second": len(self.pending) * self.batch_tokens / (now - self.since),
        }
        self.rows.append(row)
        self.pending, self.since = [], now
        if len(self.rows) - self.sent >= 20:
            self.send()

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.send()

    def send(self) -> None:
        fresh = [row for row in self.rows[self.sent :] if row["step"] > self.last_sent_step]
        self.tracking.log_rows(fresh)
        self.sent = len(self.rows)


class Progress(L.Callback):
    """One line: steps, time left, loss, KL in bits, tokens per second."""

    def __init__(self, history: History, name: str, steps: int) -> None:
        self.history, self.name, self.steps = history, name, steps
        self.bar: tqdm[Any] | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
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

    def on_train_batch_end(self, *_: Any) -> None:
        assert self.bar is not None
        if self.history.rows:
            self.bar.set_postfix(self.figures(self.history.rows[-1]), refresh=False)
        self.bar.update()

    def on_train_end(self, *_: Any) -> None:
        assert self.bar is not None
        self.bar.close()

    @staticmethod
    def figures(row: dict[str, float]) -> dict[str, str]:
        shown = {"loss": f"{row['loss_nats']:.3f} nats"}
        if "kl_bits" in row:
            shown["KL"] = f"{row['kl_bits']:.3f} bits"
        return shown | {"tokens/s": f"{row['tokens_per_second']:,.0f}"}
