"""Bounds on the NLL of held-out documents, in a stream: only sums per document are kept.

`score` is what other modules call. Where particles are `auto`, it first chooses a run's particles
and proposal on training text, by the rule of ftmodel/analysis/calibration.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftmodel.analysis.calibration import (
    MIN_PARTICLES,
    SHARES,
    Calibration,
    calibrate,
    merged,
)
from ftmodel.config import LatentDesign
from ftmodel.designs.hinge import LN2
from ftmodel.inference.bounds import exact_nll, importance_bound, latent_bounds
from ftmodel.inference.filtering import FilterSettings
from ftmodel.inference.sequence_bound import default_proposal, enumerable, enumerated_nll, nll_bound
from ftmodel.inference.two_sided import OwnText, both_bounds, sample_text
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.packing import Batch, Chunk, held_out, noise_of, packed, rows_at_once
from pipelines.artifacts.results import Details, Estimate, EvaluationResult, Figures, document_sums
from pipelines.artifacts.tokens.shards import Shards, Windows
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import Data, ProcessData
from pipelines.config.schema import AUTO, EvaluationConfig, Run
from pipelines.evaluate.measurement import Allowance
from pipelines.host.console import Bar, say
from pipelines.host.errors import UserError

MIN_CHUNKS = 32  # of training text
MAX_PARTICLES = 512  # where neither a setting nor the training limits them
SCORED_PER_CHUNK = 32  # scored chunks per chunk of training text
PARTICLES_AT_ONCE = 32  # for which `batch_tokens` is meant: with more, fewer rows


def calibrated(
    model: FreeTransformer,
    shards: Shards,
    settings: EvaluationConfig,
    scored_tokens: int,
    device: torch.device,
    allowance: Allowance | None = None,
) -> Calibration | None:
    """What suits the model's filter; None if particles are given or the NLL needs none. An
    ``allowance`` limits the particles, unless settings.max_particles does.
    """
    config, source = model.config, model.noise_source
    if settings.particles != AUTO or source is None or enumerable(config):
        return None
    chunks = training_chunks(shards, config.context, scored_tokens)
    most = settings.max_particles or MAX_PARTICLES

    def estimates(particles: int, share: float) -> Tensor:
        with_these = replace(settings, particles=particles, proposal=share)
        # the same noise for all shares, and new noise for each number of particles
        numbered = [replace(chunk, index=particles) for chunk in chunks]
        nll = filter_estimates(
            model, numbered, with_these, 2 * settings.filters, Purpose.CALIBRATION, device
        )
        progress.update(particles - progress.n)
        return nll

    shares = SHARES if settings.proposal is None else (settings.proposal,)
    if config.latent.one_code or source.drawn_once:
        shares = (0.0,)  # it has a proposal of its own
    tokens = torch.tensor([len(chunk) for chunk in chunks])
    affordable = most
    if allowance and settings.max_particles is None:
        read = int(tokens.sum())
        work = replace(allowance.work, scored_tokens=scored_tokens, calibration_tokens=read)
        compared, affordable = work.affordable(allowance.passes, len(shares), most)
        if compared < len(shares):
            shares = (allowance.share,)
        if not affordable:
            times = work.passes(MIN_PARTICLES, len(shares)) / allowance.passes
            say(
                f"the evaluation does {times:.1f} times the work of the training, with "
                f"{MIN_PARTICLES} particles; fewer evaluation.tokens or iwae_samples cost less"
            )
    with Bar(affordable, desc="calibration, at most", unit=" particles", leave=False) as progress:
        return calibrate(estimates, tokens, scored_tokens, most, shares, affordable)


def training_chunks(shards: Shards, context: int, scored_tokens: int) -> list[Chunk]:
    """Evenly spaced windows of training text, each cut to its longest stretch in one document."""
    windows, end = shards.windows("train", context), shards.metadata.end_of_text
    texts = evenly_spaced(windows, min(calibration_chunks(scored_tokens, context), len(windows)))
    return [Chunk(i, 0, part_of(text, end)) for i, text in enumerate(texts.numpy())]


def evenly_spaced(windows: Windows, n: int) -> Tensor:
    """n of the windows, (n, T + 1), some of them twice if there are fewer."""
    return windows.batch(torch.arange(n) * len(windows) // n)


def calibration_chunks(scored_tokens: int, context: int) -> int:
    """How many windows of training text are read, if there are so many."""
    return max(MIN_CHUNKS, scored_tokens // context // SCORED_PER_CHUNK)


def part_of(text: np.ndarray, end: int | None) -> np.ndarray:
    """The longest stretch between two ends of text, both included, or between one and the edge."""
    cuts = sorted({0, *np.flatnonzero(text == end).tolist(), len(text) - 1})
    start, stop = max(pairwise(cuts), key=lambda part: part[1] - part[0])
    return text[start : stop + 1]


def filter_estimates(
    model: FreeTransformer,
    chunks: Sequence[Chunk],
    settings: EvaluationConfig,
    filters: int,
    purpose: Purpose,
    device: torch.device,
    stratify: bool = True,
) -> Tensor:
    """−log p̂ of independent filters, nats (filters, chunks). Without ``stratify``, each particle
    draws its z by itself, and all particles of a batch run at once.
    """
    particles, context, source = settings.particles, model.config.context, model.noise_source
    assert isinstance(particles, int), "particles are picked before the filter runs"
    assert source is not None, "a plain baseline has no filter"
    parts = []
    how = FilterSettings(settings.resample_below, settings.proposal, stratify)
    whole = rows_at_once(settings.batch_tokens, context)
    rows = filter_rows(settings, context) if stratify else whole
    for batch in packed(chunks, context, rows, source.drawn_once):
        draw = noise_of(batch, source.width, settings.seed, purpose, device)
        inputs, targets, ids = (
            t.to(device) for t in (batch.inputs, batch.targets, batch.segment_ids)
        )
        nll = [nll_bound(model, inputs, targets, particles, draw, ids, how) for _ in range(filters)]
        parts.append(torch.stack(nll).cpu())
    return torch.cat(parts, dim=1)


def scored(filters: Tensor, calibrated: bool) -> Tensor:
    """The bound that is reported, (S,), from each filter's, (F, S), nats."""
    return merged(filters) if calibrated else filters.mean(0)


def own_text_gap(
    model: FreeTransformer,
    shards: Shards,
    settings: EvaluationConfig,
    calibration: Calibration | None,
    device: torch.device,
) -> Estimate | None:
    """How far apart upper and lower bound lie on text that the model writes, bits per token, with
    the filters that score held-out text. Its rows begin as evenly spaced training windows do. None
    for a model whose NLL is exact, or whose z is no latent code.
    """
    config = model.config
    if model.latent is None or enumerable(config) or not settings.own_text_rows:
        return None
    settings = chosen(settings, calibration)
    assert isinstance(settings.particles, int)
    windows = shards.windows("train", config.context)
    first = evenly_spaced(windows, settings.own_text_rows)[:, 0]
    rng = generator(settings.seed, Purpose.OWN_TEXT)
    text = sample_text(model, first.to(device), config.context, rng)
    chunks = [Chunk(i, 0, row) for i, row in enumerate(text.tokens.cpu().numpy())]
    how = FilterSettings(settings.resample_below, settings.proposal, calibration is not None)
    gaps = []
    for batch in packed(chunks, config.context, filter_rows(settings, config.context), alone=True):
        rows = [chunk.document for chunk in batch.chunks]
        part = OwnText(text.tokens[rows], text.codes[rows])
        draw = noise_of(batch, config.latent_bits, settings.seed, Purpose.OWN_TEXT, device)
        lower, upper = both_bounds(model, part, settings.particles, settings.filters, draw, how)
        gaps.append((scored(upper, how.stratify) - lower).cpu())
    nats = torch.cat(gaps)
    return Estimate.over_documents(nats / LN2, torch.full_like(nats, config.context))


def chosen(settings: EvaluationConfig, calibration: Calibration | None) -> EvaluationConfig:
    """Settings with what the calibration has picked."""
    if calibration is None:
        return settings
    return replace(settings, particles=calibration.particles, proposal=calibration.proposal)


def filter_rows(settings: EvaluationConfig, context: int) -> int:
    """Rows that are filtered at once: fewer with many particles, each of which is a row."""
    assert isinstance(settings.particles, int), "particles are picked before the filter runs"
    rows = rows_at_once(settings.batch_tokens, context)
    return max(1, rows * PARTICLES_AT_ONCE // max(PARTICLES_AT_ONCE, settings.particles))


def with_proposal(settings: EvaluationConfig, run: Run, design: LatentDesign) -> EvaluationConfig:
    """Settings with the default proposal, if they leave it open and particles are given."""
    if settings.proposal is not None or settings.particles == AUTO:
        return settings
    return replace(settings, proposal=default_proposal(design, run.kappa_bits or 0))


@dataclass(frozen=True)
class DocumentScores:
    """Sums over the scored tokens of each of n documents, nats, float64: (n,) each."""

    tokens: Tensor
    bytes: Tensor | None = None  # of text
    nll: Tensor | None = None  # a baseline's
    ce: Tensor | None = None  # this and the next four: a Free Transformer's
    kl: Tensor | None = None
    elbo: Tensor | None = None
    iwae: Tensor | None = None
    prior: Tensor | None = None
    # mean over independent filters, merged if they are calibrated; or exact: see enumerable
    filtering: Tensor | None = None
    filtering_variance: Tensor | None = None  # of a single filter, nats²
    use: Tensor | None = None  # what the decoder gains from the encoder's z over z of the prior
    waste: Tensor | None = None  # the rest of the KL
    exact: Tensor | None = None  # of a process
    kl_bits: Tensor | None = None  # (n, H)
    iwae_by_samples: Tensor | None = None  # (n, len(sample_counts))
    tokens_per_second: float = 0.0
    filters: int = 1  # that `filtering` averages
    calibration: Calibration | None = None

    @property
    def bound(self) -> Tensor:
        """The figure to compare arms by: the exact NLL of a baseline without a random prefix, else
        the filtering bound.
        """
        bound = self.filtering if self.nll is None else self.nll
        assert bound is not None
        return bound

    def figures(self, sizes: Tensor) -> Figures:
        """Figures in bits per token or per byte; ``sizes`` (n,) counts these in each document."""
        sums = {name: getattr(self, name) for name in Figures.__dataclass_fields__}
        figures = {
            name: Estimate.over_documents(nats / LN2, sizes)
            for name, nats in sums.items()
            if nats is not None
        }
        if self.filtering_variance is not None:
            variance = self.filtering_variance.sum().item()
            units = LN2 * sizes.sum().item()
            half_variance = variance / 2 / units
            if self.calibration:  # the variance is that of a mean of probabilities
                half_variance /= self.filters
            figures["filtering"] = replace(
                figures["filtering"],
                monte_carlo=sqrt(variance / self.filters) / units,
                half_variance=half_variance,
                converged=self.calibration.converged if self.calibration else None,
            )
        return Figures(**figures)

    @property
    def bits_per_token(self) -> Figures:
        return self.figures(self.tokens)

    @property
    def bits_per_byte(self) -> Figures | None:
        return None if self.bytes is None else self.figures(self.bytes)


def sample_counts(samples: int) -> list[int]:
    """The numbers of samples to report: 1, 2, 4, … and K itself."""
    return [*(1 << i for i in range((samples - 1).bit_length())), samples]


def score(
    model: FreeTransformer,
    shards: Shards,
    data: Data,
    settings: EvaluationConfig,
    device: torch.device,
    allowance: Allowance | None = None,
) -> DocumentScores:
    """Score the validation part, or as much of it as ``settings.tokens`` allows, by a filter that
    costs what the ``allowance`` allows.

    Raises UserError if it has no document.
    """
    context = model.config.context
    rows = rows_at_once(settings.batch_tokens, context)
    process = PROCESSES[data.source] if isinstance(data, ProcessData) else None
    token_bytes = None if process else shards.token_bytes()
    documents: list[int] = []
    parts: list[dict[str, Tensor]] = []
    start = perf_counter()
    held_out_tokens = shards.metadata.splits["validation"].tokens
    asked = settings.tokens
    assert not isinstance(asked, str), "settled before the evaluation begins"
    total = min(asked or held_out_tokens, held_out_tokens)
    calibration = calibrated(model, shards, settings, total, device, allowance)
    settings = chosen(settings, calibration)
    with Bar(total, desc="bounds", unit=" tokens", unit_scale=True, leave=False) as progress:
        for batch in packed(held_out(shards, context, asked), context, rows):
            part = bounds_of(model, batch, settings, device, stratify=calibration is not None)
            ids = [torch.from_numpy(chunk.tokens) for chunk in batch.chunks]
            if process:
                part["exact"] = -process.log_probability(torch.stack(ids))
            if token_bytes is not None:
                part["bytes"] = torch.stack([token_bytes[chunk[1:]].sum() for chunk in ids])
            parts.append(part)
            documents += [chunk.document for chunk in batch.chunks]
            progress.update(int(part["tokens"].sum()))
    seconds = perf_counter() - start
    if not parts:
        raise UserError(f"{shards.folder}: its validation part has no document")
    whole = {name: torch.cat([part[name] for part in parts]).double() for name in parts[0]}
    document = torch.tensor(documents)
    sums: dict[str, Any] = {k: document_sums(each, document)[0] for k, each in whole.items()}
    return DocumentScores(
        **sums,
        tokens_per_second=sums["tokens"].sum().item() / seconds,
        filters=settings.filters,
        calibration=calibration,
    )


def bounds_of(
    model: FreeTransformer,
    batch: Batch,
    settings: EvaluationConfig,
    device: torch.device,
    stratify: bool,
) -> dict[str, Tensor]:
    """Sums over each of a batch's n chunks, (n, …), by the names of DocumentScores. With
    ``stratify``, as after a calibration, particles draw z together, and filters are merged.
    """
    inputs, targets, ids = (t.to(device) for t in (batch.inputs, batch.targets, batch.segment_ids))
    tokens = torch.tensor([len(chunk) for chunk in batch.chunks])
    if model.noise_source is None:
        return {"tokens": tokens, "nll": exact_nll(model, inputs, targets, ids).cpu()}
    if enumerable(model.config):  # twice the NLL itself
        filters = enumerated_nll(model, inputs, targets, ids).cpu().expand(2, -1)
    else:
        filters = filter_estimates(
            model, batch.chunks, settings, settings.filters, Purpose.FILTER, device, stratify
        )
    filtering = scored(filters, stratify)
    variance = filters.var(0)
    if model.latent is None:
        return {"tokens": tokens, "filtering": filtering, "filtering_variance": variance}
    draw = noise_of(batch, model.config.latent_bits, settings.seed, Purpose.BOUNDS, device)
    bounds = latent_bounds(model, inputs, targets, settings.iwae_samples, draw, ids)
    sums = {name: v.cpu() for name, v in vars(bounds).items() if name != "log_weights"}
    counts = sample_counts(settings.iwae_samples)
    by_samples = torch.stack([importance_bound(bounds.log_weights, k) for k in counts], dim=1)
    return dict(
        tokens=tokens,
        **sums,
        filtering=filtering,
        filtering_variance=variance,
        use=filtering - sums["ce"],
        waste=sums["elbo"] - filtering,
        iwae_by_samples=by_samples.cpu(),
    )


def results_of(
    scores: DocumentScores, settings: EvaluationConfig
) -> tuple[EvaluationResult, Details]:
    """The results that every model has on any data."""
    tokens = int(scores.tokens.sum())
    bound = scores.bound
    evaluation = EvaluationResult(
        documents=len(scores.tokens),
        tokens=tokens,
        tokens_per_second=scores.tokens_per_second,
        bits_per_token=scores.bits_per_token,
        bits_per_byte=scores.bits_per_byte,
        calibration=scores.calibration,
    )
    details = Details(
        kl_per_bit=[],
        bound_bits=[round(bits, 6) for bits in (bound / LN2).tolist()],
        document_tokens=scores.tokens.long().tolist(),
    )
    if scores.kl_bits is not None:
        details.kl_per_bit = (scores.kl_bits.sum(0) / tokens / LN2).tolist()
    if scores.bytes is not None:
        evaluation.bytes = int(scores.bytes.sum())
        details.document_bytes = scores.bytes.long().tolist()
    if scores.iwae_by_samples is not None:
        evaluation.iwae_by_samples = {
            k: Estimate.over_documents(nats / LN2, scores.tokens)
            for k, nats in zip(
                sample_counts(settings.iwae_samples), scores.iwae_by_samples.T, strict=True
            )
        }
    if scores.exact is not None:
        evaluation.gap_nats_per_token = Estimate.over_documents(bound - scores.exact, scores.tokens)
        if scores.elbo is not None:
            evaluation.elbo_gap_nats_per_token = Estimate.over_documents(
                scores.elbo - scores.exact, scores.tokens
            )
    return evaluation, details
