"""The Lightning module: one class for both arms; the objective itself is ftmodel's."""

from collections.abc import Collection, Iterable
from statistics import median
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.distributed.tensor import DTensor

from ftmodel import schedule
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from pipelines.config.schema import Optim, Run, Schedule
from pipelines.host.console import say
from pipelines.train.core.acceleration import shard
from pipelines.train.core.optimizer import make_optimizer

NORMS = 100  # in a running median
MIN_NORMS = 20  # before a step may be skipped


def learning_rate_factor(optim: Optim, step: int, steps: int) -> float:
    """The factor on ``optim.lr`` at a step (from 0) of ``steps``."""
    if optim.schedule is Schedule.wsd:
        return schedule.wsd(step, optim.warmup_steps, optim.decay, steps)
    return schedule.cosine(step, optim.warmup_steps, steps)


def full(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def norm_of(parameters: Iterable[Tensor]) -> Tensor:
    """The norm of the parameters' gradients."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    return full(torch.nn.utils.get_total_norm(gradients))


class NonFinite(Exception):
    """A loss, and so a gradient, that is infinite or not a number."""

    def __init__(self, step: int, windows: list[int]) -> None:
        super().__init__(step, windows)
        self.step, self.windows = step, windows


class TrainingModule(L.LightningModule):
    def __init__(
        self,
        model: FreeTransformer,
        optim: Optim,
        run: Run,
        steps: int,
        end_of_text: int | None = None,
        compile_loss: bool = False,
        copied: Collection[str] = (),
    ) -> None:
        """``end_of_text`` is the id that every document starts with, for ``document_mask``;
        ``copied`` names the model's parameters that come from the run's parent.
        """
        super().__init__()
        self.training_loss = torch.compile(training_loss) if compile_loss else training_loss
        self.model, self.optim, self.run, self.steps = model, optim, run, steps
        self.end_of_text, self.copied = end_of_text, frozenset(copied)
        self.windows: list[Tensor] = []  # ids, in the current optimizer step
        self.logged: dict[str, list[Tensor]] = {}  # since the last row of the curve
        self.norms: list[float] = []  # of the last gradients, before they were clipped

    def configure_model(self) -> None:
        """Shard the model, if the strategy is FSDP."""
        if self.device_mesh is not None:
            shard(self.model, self.device_mesh["data_parallel"])

    def log(self, name: str, value: Any, *_: Any, **options: Any) -> None:
        """Log a number for the training curve, MLflow and the progress bar, on all workers alike.

        Lightning's own averages over epochs and takes 0.3 ms a call. Here CurveCallback averages
        over the steps, micro-batches and workers of a row, and waits for no GPU till then.
        """
        if options.get("reduce_fx", "mean") not in ("mean", torch.mean):
            raise ValueError(f"{name}: rows of the curve are means")
        number = torch.as_tensor(value).detach().clone().reshape(())
        number = number if number.is_floating_point() else number.double()
        self.logged.setdefault(name, []).append(number)

    def training_step(self, batch: dict[str, Tensor], _index: int) -> Tensor:
        self.windows.append(batch["windows"])
        inputs, targets = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
        documents = None
        if self.model.config.document_mask:
            assert self.end_of_text is not None, "rows are documents already"
            documents = inputs.eq(self.end_of_text).cumsum(1)
        noise, kappa = batch.get("noise"), self.threshold()
        over_workers = self.over_workers if self.trainer.world_size > 1 else None
        loss = self.training_loss(
            self.model, inputs, targets, noise, kappa, documents, over_workers, self.run.beta
        )
        self.log("loss", loss.total)  # in nats, all four; the curve has KL in bits
        self.log("ce", loss.ce)
        if loss.kl is not None:
            self.log("kl", loss.kl)
            self.log("hinge", loss.hinge)
        if loss.kl_of_bits is not None:
            self.logged.setdefault("kl_of_bits", []).append(loss.kl_of_bits)
        return loss.total

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def over_workers(self, value: Tensor) -> Tensor:
        """Average a tensor over all workers."""
        reduced = self.trainer.strategy.reduce(value.clone(), reduce_op="mean")
        assert isinstance(reduced, Tensor)
        return reduced

    def threshold(self) -> float | None:
        """κ at the coming optimizer step, in bits per token."""
        if self.run.kappa_bits is None:
            return None
        risen = schedule.threshold(self.global_step, self.run.kappa_warmup_steps)
        return self.run.kappa_bits * risen

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clip by norm. Lightning's own refuses a fused optimizer under bf16, which scales nothing.

        Raises NonFinite before the optimizer has stepped: the weights are still good.
        """
        if latent := self.model.latent:
            others = ("post_sampler", "prior.")
            encoder = [p for name, p in latent.named_parameters() if not name.startswith(others)]
            self.log("gradient_norm_encoder", norm_of(encoder))
            self.log("gradient_norm_post_sampler", norm_of([latent.post_sampler]))
        norm = full(torch.nn.utils.clip_grad_norm_(self.parameters(), self.optim.clip))
        if not norm.isfinite():  # on all workers alike
            windows = self.all_gather(torch.cat(self.windows))
            assert isinstance(windows, Tensor)
            raise NonFinite(self.global_step + 1, windows.flatten().tolist())
        self.windows = []
        self.note(norm.item())

    def note(self, norm: float) -> None:
        """Log the norm of a step's gradient, and drop the gradient if the norm is a spike: then the
        optimizer changes neither weights nor moments.
        """
        usual, most = median(self.norms or [norm]), self.optim.skip_spikes
        self.log("gradient_norm", norm)
        self.log("gradient_norm_median", usual)
        if most is not None:
            spike = len(self.norms) >= MIN_NORMS and norm > most * usual
            self.log("skipped_steps", float(spike))
            if spike:
                self.zero_grad()
            if spike and self.global_rank == 0:
                say(
                    f"step {self.global_step + 1} is skipped: the gradient's norm is {norm:.4g}, "
                    f"above optim.skip_spikes {most:g} × {usual:.4g}, the median before"
                )
        self.norms = [*self.norms, norm][-NORMS:]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        copied_lr = self.run.init_from.copied_lr
        optimizer = make_optimizer(self.model, self.optim, self.copied, copied_lr)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_factor(self.optim, step, self.steps)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
