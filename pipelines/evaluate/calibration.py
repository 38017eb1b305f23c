"""Chooses a run's particles and proposal on training text, by the rule of
ftmodel/analysis/calibration.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ftmodel.analysis.calibration import SHARES, Calibration, calibrate
from ftmodel.inference.sequence_bound import enumerable, nll_bound
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.packing import Chunk, noise_of, packed
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.console import Bar
from pipelines.common.rng_streams import Purpose
from pipelines.config.schema import AUTO, EvaluationConfig

MIN_CHUNKS = 32  # of training text
SCORED_PER_CHUNK = 32  # scored chunks per chunk of training text
PARTICLES_AT_ONCE = 32  # for which `batch_tokens` is meant: with more, fewer rows


def calibrated(
    model: FreeTransformer,
    shards: Shards,
    settings: EvaluationConfig,
    scored_tokens: int,
    device: torch.device,
) -> Calibration | None:
    """What suits the model's filter; None if particles are given or the NLL needs none."""
    config = model.config
    if settings.particles != AUTO or not config.noise_width or enumerable(config):
        return None
    context, chosen = config.context, settings.proposal
    chunks, most = training_chunks(shards, context, scored_tokens), settings.max_particles

    def estimates(particles: int, share: float) -> Tensor:
        with_these = replace(settings, particles=particles, proposal=share)
        # the same noise for all shares, and new noise for each number of particles
        numbered = [replace(chunk, index=particles) for chunk in chunks]
        filters, stream = 2 * settings.filters, Purpose.CALIBRATION
        nll = filter_estimates(model, numbered, with_these, filters, stream, device)
        progress.update(particles - progress.n)
        return nll

    shares = SHARES if chosen is None else (chosen,)
    if config.latent.one_code or config.random_prefix:
        shares = (0.0,)  # it has a proposal of its own
    tokens = torch.tensor([len(chunk) for chunk in chunks])
    with Bar(most, desc="calibration, at most", unit=" particles", leave=False) as progress:
        return calibrate(estimates, tokens, scored_tokens, most, shares)


def training_chunks(shards: Shards, context: int, scored_tokens: int) -> list[Chunk]:
    """Evenly spaced windows of training text, each cut to its longest stretch in one document."""
    windows = shards.windows("train", context)
    n = min(max(MIN_CHUNKS, scored_tokens // context // SCORED_PER_CHUNK), len(windows))
    texts = windows.batch(torch.arange(n) * len(windows) // n).numpy()
    return [Chunk(i, 0, part_of(text, shards.metadata.end_of_text)) for i, text in enumerate(texts)]


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
    particles, config, parts = settings.particles, model.config, []
    context, alone = config.context, bool(config.random_prefix)
    assert isinstance(particles, int), "particles are picked before the filter runs"
    rows = settings.batch_tokens // context
    if stratify:
        rows = rows * PARTICLES_AT_ONCE // max(PARTICLES_AT_ONCE, particles)
    for batch in packed(chunks, context, max(1, rows), alone):
        draw = noise_of(batch, config.noise_width, settings.seed, purpose, device)
        inputs, targets, ids = (
            t.to(device) for t in (batch.inputs, batch.targets, batch.segment_ids)
        )
        common = model, inputs, targets, particles, draw, ids, settings.resample_below
        nll = [nll_bound(*common, settings.proposal, stratify) for _ in range(filters)]
        parts.append(torch.stack(nll).cpu())
    return torch.cat(parts, dim=1)
