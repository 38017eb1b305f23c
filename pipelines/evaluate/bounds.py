"""Bounds on the NLL of held-out documents, streamed: of each piece only its figures are kept."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ftmodel.analysis.statistics import mean_and_error
from ftmodel.inference.bounds import exact_nll, importance_bound, latent_bounds
from ftmodel.model.objective import LN2
from ftmodel.model.transformer import FreeTransformer
from ftmodel.synthetic.registry import Process
from pipelines.artifacts.packing import Batch, held_out, noise_of, packed
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose
from pipelines.config.schema import Evaluation

Figures = dict[str | int, Tensor]  # by name, or, of IWAE, by the number of samples


@dataclass
class Scores:
    """Figures of n documents, each the sum over the document's scored tokens: (n,), float64."""

    nats: dict[str, Tensor]  # nll, or ce, kl, elbo, iwae and prior; and exact, of a process
    iwae: dict[int, Tensor]  # nats, by the number of samples; empty for a baseline
    kl_bits: Tensor  # (n, H), nats; H = 0 for a baseline
    tokens: Tensor
    bytes: Tensor | None  # of text
    tokens_per_second: float

    @property
    def bound(self) -> Tensor:
        """What arms are compared by, nats: the exact NLL of a baseline, else IWAE."""
        return self.nats["nll" if "nll" in self.nats else "iwae"]

    def bits(self) -> dict[str, Any]:
        """Bits per token and, of text, per byte, with standard errors over documents."""
        sizes = {"bits_per_token": self.tokens}
        if self.bytes is not None:
            sizes["bits_per_byte"] = self.bytes
        return {
            unit: {name: mean_and_error(v / LN2, size) for name, v in self.nats.items()}
            for unit, size in sizes.items()
        }


def sample_counts(samples: int) -> list[int]:
    """1, 2, 4, … and K itself."""
    return [*(1 << i for i in range((samples - 1).bit_length())), samples]


def score(
    model: FreeTransformer,
    shards: Shards,
    process: Process | None,
    settings: Evaluation,
    device: torch.device,
) -> Scores:
    """Score the validation part, or as much of it as ``settings.tokens`` allows.

    Raises UserError if nothing is there.
    """
    context = model.config.context
    rows = max(1, settings.batch_tokens // context)
    sizes = None if process else shards.token_bytes()
    documents: list[int] = []
    parts: list[Figures] = []
    start = perf_counter()
    with tqdm(desc="bounds", unit=" tokens", unit_scale=True, leave=False) as progress:
        for batch in packed(held_out(shards, context, settings.tokens), context, rows):
            part = bounds_of(model, batch, settings, device)
            ids = [torch.from_numpy(piece.tokens) for piece in batch.pieces]
            part["tokens"] = torch.tensor([len(piece) for piece in batch.pieces])
            if process:
                part["exact"] = -process.log_probability(torch.stack(ids))
            if sizes is not None:
                part["bytes"] = torch.stack([sizes[piece[1:]].sum() for piece in ids])
            parts.append(part)
            documents += [piece.document for piece in batch.pieces]
            progress.update(int(part["tokens"].sum()))
    seconds = perf_counter() - start
    if not parts:
        raise UserError(f"{shards.folder}: its validation part has no document")
    totals = per_document(parts, documents)
    tokens = totals.pop("tokens")
    return Scores(
        tokens=tokens,
        bytes=totals.pop("bytes", None),
        kl_bits=totals.pop("kl_bits", torch.zeros(len(tokens), 0)),
        iwae={k: totals.pop(k) for k in list(totals) if isinstance(k, int)},
        nats={name: values for name, values in totals.items() if isinstance(name, str)},
        tokens_per_second=tokens.sum().item() / seconds,
    )


def bounds_of(
    model: FreeTransformer, batch: Batch, settings: Evaluation, device: torch.device
) -> Figures:
    """Figures of the pieces of a batch, nats, (S, …) each, IWAE-k under the number k."""
    inputs, targets, numbers = (t.to(device) for t in (batch.inputs, batch.targets, batch.numbers))
    if model.latent is None:
        return {"nll": exact_nll(model, inputs, targets, numbers).cpu()}
    draw = noise_of(batch, model.config.latent_bits, settings.seed, Purpose.BOUNDS, device)
    found = latent_bounds(model, inputs, targets, settings.iwae_samples, draw, numbers)
    figures: Figures = {name: v for name, v in vars(found).items() if name != "log_weights"}
    for k in sample_counts(settings.iwae_samples):
        figures[k] = importance_bound(found.log_weights, k)
    return {name: values.cpu() for name, values in figures.items()}


def per_document(parts: list[Figures], documents: list[int]) -> Figures:
    """The figures of the documents that pieces, in batches, are of: sums, in float64."""
    _, places = np.unique(documents, return_inverse=True)
    totals: Figures = {}
    for name in parts[0]:
        values = torch.cat([part[name] for part in parts]).double()
        zeros = values.new_zeros(places.max() + 1, *values.shape[1:])
        totals[name] = zeros.index_add_(0, torch.from_numpy(places), values)
    return totals
