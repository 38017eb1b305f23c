"""Shows progress while training goes on; nothing here decides a result."""

from typing import Any

import lightning as L

from ftmodel.model.objective import collapsed
from pipelines.artifacts.curve import CurveRow
from pipelines.common.console import FORMAT, Bar, say
from pipelines.tracking.live import Tracking
from pipelines.train.core.curve_callback import CurveCallback
from pipelines.train.core.step_callback import StepCallback

NOT_IN_BAR = ("gradient_norm", "bits_in_use", "held_out")  # of the curve: there is no room


class Progress(StepCallback):
    """A bar of optimizer steps, on one line of stderr: steps, time left, and what the newest row of
    the curve has. In a log it is a line at every tenth.
    """

    def __init__(self, curve: CurveCallback, name: str, steps: int) -> None:
        self.curve, self.name, self.steps = curve, name, steps
        self.bar: Bar | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        super().on_train_start(trainer, module)
        begun: dict[str, Any] = {"initial": trainer.global_step, "mininterval": 0.5}
        self.bar = Bar(self.steps, desc=self.name, bar_format=FORMAT, **begun)

    def on_step(self, trainer: L.Trainer) -> None:
        assert self.bar is not None
        rows = self.curve.rows
        figures = shown(rows[-1]) if rows else {}
        if scored := [row.held_out for row in rows if row.held_out is not None]:
            figures["held-out"] = f"{scored[-1]:.3f} bits"
        self.bar.set_postfix(figures, refresh=False)
        self.bar.update()

    def on_train_end(self, *_: Any) -> None:
        if self.bar is not None:  # else the next line would stand behind it
            self.bar.close()

    def on_exception(self, *_: Any) -> None:
        self.on_train_end()


def shown(row: CurveRow) -> dict[str, str]:
    figures = {"loss": f"{row.loss_nats:.3f} nats"}
    if row.kl_bits is not None:
        figures["KL"] = f"{row.kl_bits:.3f} bits"
    figures["tokens/s"] = f"{row.tokens_per_second:,.0f}"
    others = {name: value for name, value in row.others.items() if not name.startswith(NOT_IN_BAR)}
    return figures | {name: f"{value:.4g}" for name, value in others.items()}


class CollapseWarning(StepCallback):
    """Says once, while the run can still be stopped, that the latent has collapsed."""

    def __init__(self, tracking: Tracking, curve: CurveCallback, kappa: float, steps: int) -> None:
        """``steps`` counts the whole training."""
        self.tracking, self.curve, self.kappa, self.steps = tracking, curve, kappa, steps
        self.warned = False

    def on_step(self, trainer: L.Trainer) -> None:
        rows = self.curve.rows
        if self.warned or not rows or not rows[-1].step == self.step <= self.curve.segment.trunk:
            return
        kl = {row.step: row.kl_bits or 0.0 for row in rows}
        if collapsed(kl, self.kappa, self.steps):
            self.warned = True
            self.tracking.journal.append(tags={"collapsed": "yes"})
            name = self.tracking.journal.run.run_name
            say(
                f"{name}: the latent has collapsed: for a third of the training, KL was under a "
                f"tenth of κ = {self.kappa:g} bits (now {kl[self.step]:.4f})"
            )
