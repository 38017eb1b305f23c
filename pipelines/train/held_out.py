"""Held-out evaluation during training; it changes no weight."""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import lightning as L
import torch
from torch import Tensor

from ftmodel.designs.hinge import LN2
from ftmodel.inference.bounds import exact_nll, latent_bounds
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose, generator
from pipelines.train.core.curve_callback import CurveCallback
from pipelines.train.core.module import TrainingModule
from pipelines.train.core.step_callback import StepCallback

SHARE = 0.03  # of the tokens trained on since the last evaluation
PARTICLES = 4
WINDOWS_PER_FILTER = 4  # one window in so many is filtered: filters take longer
# scored at once. No setting: noise is drawn batch by batch, so a resumed run would have other noise
TOKENS_AT_ONCE = 4096

Draw = Callable[[], Tensor]
Score = Callable[[Tensor, Tensor, Tensor, Draw], Tensor]  # sums of nats, of a batch of windows


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
    rng, bits = generator(seed, Purpose.HELD_OUT), model.config.noise_width

    def mean(score: Score, tokens: Tensor) -> list[float]:
        total = torch.zeros(())
        for part in tokens.split(rows):
            inputs = part[:, :-1]
            noise = partial(draw, rng, (*inputs.shape, bits), inputs.device)
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
        score = filtered if bits else exact
        return dict(zip(["bound"], mean(score, tokens), strict=True))
    values = mean(filtered, tokens[::WINDOWS_PER_FILTER]) + mean(reconstruction, tokens)
    return dict(zip(["bound", "ce", "kl"], values, strict=True))


def draw(rng: torch.Generator, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.rand(shape, generator=rng).to(device)


class HeldOut(StepCallback):
    """Logs ``held_out_figures`` after every so many steps, as ``held_out_<name>_bits``.

    It comes before CurveCallback, whose row ends there, so that the row, and the checkpoint that is
    written next, have the figures: Lightning would validate after both. Its time does not count as
    training's. All workers score the same.
    """

    def __init__(self, spec: RunSpec, shards: Shards, curve: CurveCallback, every: int) -> None:
        """``every`` counts tokens. Raises UserError as ``fixed_part`` does."""
        self.tokens, self.seed = fixed_part(spec, shards, every), spec.run.seed
        self.every = every // spec.batch_tokens  # steps
        self.rows = max(1, TOKENS_AT_ONCE // spec.config.context)
        self.curve, self.name, self.end_of_text = curve, spec.name, shards.metadata.end_of_text
        curve.ends |= set(range(self.every, spec.steps + 1, self.every))
        self.began, self.took = perf_counter(), 0.0

    def on_step(self, trainer: L.Trainer) -> None:
        if self.step % self.every:
            return
        module, start = trainer.lightning_module, perf_counter()
        assert isinstance(module, TrainingModule)
        with torch.compiler.set_stance("force_eager"):  # nothing is compiled anew for it
            tokens = self.tokens.to(module.device)
            figures = held_out_figures(module.model, tokens, self.end_of_text, self.seed, self.rows)
        for name, bits in figures.items():
            module.log(f"held_out_{name}_bits", bits)
        took = perf_counter() - start
        self.curve.since += took
        self.took += took

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        share = self.took / (perf_counter() - self.began)
        if trainer.is_global_zero:
            say(f"{self.name}: {share:.1%} of the time went into held-out evaluation")
