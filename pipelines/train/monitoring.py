"""What is shown while training goes on: a bar, a warning of a collapse, figures of held-out text.
Nothing here changes a weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning as L
import torch
from torch import Tensor

from ftmodel.designs.hinge import LN2
from ftmodel.inference.bounds import exact_nll, latent_bounds
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import collapsed
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.host.console import FORMAT, Bar, say
from pipelines.host.errors import UserError
from pipelines.tracking.live import Tracking
from pipelines.train.core.callbacks import CurveCallback, StepCallback
from pipelines.train.core.module import TrainingModule

# a profile's steps: until memory and clocks have settled and the profiler is warm; that are traced
SETTLING_STEPS = 9
TRACED_STEPS = 10
SHOWN_OPERATIONS = 12
NOT_IN_BAR = ("gradient_norm", "bits_in_use", "held_out")  # of the curve: there is no room
# held-out evaluation
SHARE = 0.03  # of the tokens trained on since the last evaluation
PARTICLES = 4
WINDOWS_PER_FILTER = 4  # one window in so many is filtered: filters take longer
# scored at once. No setting: noise is drawn batch by batch, so a resumed run would have other noise
TOKENS_AT_ONCE = 4096

Draw = Callable[[], Tensor]
Score = Callable[[Tensor, Tensor, Tensor, Draw], Tensor]  # sums of nats, of a batch of windows


@dataclass(eq=False)
class Profile(StepCallback):
    """Traces a few steps (compute.profile): a file for chrome://tracing or ui.perfetto.dev, and a
    table of the operations with the most self time.
    """

    path: Path
    profiler: torch.profiler.profile | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        super().on_train_start(trainer, module)
        steps = torch.profiler.schedule(
            wait=SETTLING_STEPS, warmup=1, active=TRACED_STEPS, repeat=1
        )
        self.profiler = torch.profiler.profile(schedule=steps, on_trace_ready=self.write)
        self.profiler.start()

    def on_step(self, trainer: L.Trainer) -> None:
        if self.profiler:
            self.profiler.step()

    def write(self, profiler: torch.profiler.profile) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self.path))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        table = profiler.key_averages().table(
            sort_by=f"self_{device}_time_total", row_limit=SHOWN_OPERATIONS
        )
        say(f"{table}\ntrace: {self.path} (for chrome://tracing or ui.perfetto.dev)")

    def on_train_end(self, *_: Any) -> None:
        if self.profiler:
            self.profiler.stop()
            self.profiler = None

    def on_exception(self, *_: Any) -> None:
        self.on_train_end()


@dataclass(eq=False)
class Progress(StepCallback):
    """A bar of optimizer steps, on one line of stderr: steps, time left, and what the newest row of
    the curve has. In a log it is a line at every tenth.
    """

    curve: CurveCallback
    name: str
    steps: int
    bar: Bar | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        super().on_train_start(trainer, module)
        begun: dict[str, Any] = {"initial": trainer.global_step, "mininterval": 0.5}
        self.bar = Bar(self.steps, desc=self.name, bar_format=FORMAT, **begun)

    def on_step(self, trainer: L.Trainer) -> None:
        assert self.bar is not None
        rows = self.curve.rows
        figures: dict[str, str] = {}
        if rows:
            row = rows[-1]
            figures["loss"] = f"{row.loss_nats:.3f} nats"
            if row.kl_bits is not None:
                figures["KL"] = f"{row.kl_bits:.3f} bits"
            figures["tokens/s"] = f"{row.tokens_per_second:,.0f}"
            for name, value in row.others.items():
                if not name.startswith(NOT_IN_BAR):
                    figures[name] = f"{value:.4g}"
        if scored := [row.held_out for row in rows if row.held_out is not None]:
            figures["held-out"] = f"{scored[-1]:.3f} bits"
        self.bar.set_postfix(figures, refresh=False)
        self.bar.update()

    def on_train_end(self, *_: Any) -> None:
        if self.bar is not None:  # else the next line would stand behind it
            self.bar.close()

    def on_exception(self, *_: Any) -> None:
        self.on_train_end()


@dataclass(eq=False)
class CollapseWarning(StepCallback):
    """Says once, while the run can still be stopped, that the latent has collapsed."""

    tracking: Tracking
    curve: CurveCallback
    kappa: float
    steps: int  # of the whole training
    warned: bool = False

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


def held_out_steps(spec: RunSpec, every_tokens: int) -> range:
    """The steps after which held-out windows are scored."""
    every = every_tokens // spec.batch_tokens
    return range(every, spec.steps + 1, every)


def fixed_part(spec: RunSpec, shards: Shards, every_tokens: int) -> Tensor:
    """Windows (n, T + 1) of the validation part, evenly spaced, the same at every evaluation.

    Raises UserError if the share of ``every_tokens`` is less than a window, or more than there is.
    """
    context, key = spec.config.context, f"evaluation.every_tokens: {every_tokens}"
    windows = shards.windows("validation", context)
    wanted = int(SHARE * every_tokens / context)
    if not wanted:
        least = int(context / SHARE) + 1
        raise UserError(
            f"{key}: {SHARE:.0%} of it, which are scored each time, are less than a window of "
            f"{context} tokens of {spec.name}; at least {least}"
        )
    if wanted > len(windows):
        raise UserError(
            f"{key}: {SHARE:.0%} of it, which are scored each time, are {wanted} windows of "
            f"{context} tokens, but data.{spec.run.data} holds out {len(windows)}"
        )
    return windows.batch(torch.arange(wanted) * len(windows) // wanted)


def segments_of(inputs: Tensor, end_of_text: int | None) -> Tensor:
    """Segment ids (B, T) as in ``latent_bounds``: one for each row, or for each document."""
    documents = torch.zeros_like(inputs)
    if end_of_text is not None:
        documents = inputs.eq(end_of_text).cumsum(1)
    rows = torch.arange(len(inputs), device=inputs.device)[:, None] * (inputs.shape[1] + 1)
    return (documents + rows).unique(return_inverse=True)[1] + 1


def held_out_figures(
    model: FreeTransformer, tokens: Tensor, end_of_text: int | None, seed: int, rows: int
) -> dict[str, float]:
    """Bits per token of windows ``tokens`` (n, T + 1), with ``rows`` of them in a batch.

    ``bound`` is the exact NLL of a baseline; with a random prefix, a bound by few prefixes. For a
    Free Transformer it is a loose filtering bound, with few particles and on some of the windows;
    ``ce``, the reconstruction, and ``kl`` are on all. ``end_of_text`` is as in TrainingModule. All
    noise comes from one random stream of its own.
    """
    ends = end_of_text if model.config.document_mask else None
    rng = generator(seed, Purpose.HELD_OUT)
    width = model.config.noise_width

    def mean(score: Score, tokens: Tensor) -> list[float]:
        total = torch.zeros(())
        for part in tokens.split(rows):
            inputs = part[:, :-1]
            noise = partial(draw, rng, (*inputs.shape, width), inputs.device)
            total = total + score(inputs, part[:, 1:], segments_of(inputs, ends), noise).cpu()
        count = len(tokens) * (tokens.shape[1] - 1)
        return [nats / count / LN2 for nats in total.tolist()]

    def exact(x: Tensor, y: Tensor, ids: Tensor, _: Draw) -> Tensor:
        return exact_nll(model, x, y, ids).sum()[None]

    def reconstruction(x: Tensor, y: Tensor, ids: Tensor, noise: Draw) -> Tensor:
        bounds = latent_bounds(model, x, y, 1, noise, ids)
        return torch.stack([bounds.ce.sum(), bounds.kl.sum()])

    def filtered(x: Tensor, y: Tensor, ids: Tensor, noise: Draw) -> Tensor:
        return nll_bound(model, x, y, PARTICLES, noise, ids).sum()[None]

    if model.latent is None:
        score = filtered if width else exact
        return dict(zip(["bound"], mean(score, tokens), strict=True))
    values = mean(filtered, tokens[::WINDOWS_PER_FILTER]) + mean(reconstruction, tokens)
    return dict(zip(["bound", "ce", "kl"], values, strict=True))


def draw(rng: torch.Generator, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.rand(shape, generator=rng).to(device)


class HeldOut(StepCallback):
    """Logs ``held_out_figures`` after every so many steps, as ``held_out_<name>_bits``.

    A row of the curve must end there. This callback comes before CurveCallback, so that the row,
    and the checkpoint that is written next, have the figures: Lightning would validate after both.
    All workers score the same.
    """

    def __init__(
        self,
        spec: RunSpec,
        shards: Shards,
        every_tokens: int,
        leave_out: Callable[[float], None],
    ) -> None:
        """``leave_out`` is told the seconds that an evaluation took, which are not training's.
        Raises UserError as ``fixed_part`` does.
        """
        self.tokens = fixed_part(spec, shards, every_tokens)
        self.steps = held_out_steps(spec, every_tokens)
        self.leave_out = leave_out
        self.name = spec.name
        self.seed = spec.run.seed
        self.end_of_text = shards.metadata.end_of_text
        self.rows = max(1, TOKENS_AT_ONCE // spec.config.context)
        self.began_at = perf_counter()
        self.seconds = 0.0

    def on_step(self, trainer: L.Trainer) -> None:
        if self.step not in self.steps:
            return
        start = perf_counter()
        module = trainer.lightning_module
        assert isinstance(module, TrainingModule)
        with torch.compiler.set_stance("force_eager"):  # nothing is compiled anew for it
            tokens = self.tokens.to(module.device)
            figures = held_out_figures(module.model, tokens, self.end_of_text, self.seed, self.rows)
        for name, bits in figures.items():
            module.log(f"held_out_{name}_bits", bits)
        seconds = perf_counter() - start
        self.leave_out(seconds)
        self.seconds += seconds

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        share = self.seconds / (perf_counter() - self.began_at)
        if trainer.is_global_zero:
            say(f"{self.name}: {share:.1%} of the time went into held-out evaluation")
