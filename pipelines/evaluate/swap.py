"""How well held-out text is rebuilt with z that is not its own."""

from dataclasses import asdict
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from ftmodel.designs.hinge import LN2
from ftmodel.inference.swap import another_document, swapped_ce
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Swap
from pipelines.artifacts.packing import Chunk, held_out, rows_at_once
from pipelines.common.console import say
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import TextData
from pipelines.evaluate.measurement import Context

SAMPLES = 2  # of z from each source


def applies(context: Context) -> bool:
    latent_of_text = isinstance(context.data, TextData) and context.model.latent is not None
    return latent_of_text and bool(context.settings.swap_tokens)


def measure(context: Context) -> None:
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.swap_tokens))
    texts, documents = of_one_length(chunks)
    if len(documents.unique()) < 2:
        say(f"no swap of z: evaluation.swap_tokens={settings.swap_tokens} are of one document")
        return
    rng = generator(settings.seed, Purpose.SWAP)
    donor = another_document(documents, rng)
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    ce = swapped_ce(model, texts.to(context.device), donor, SAMPLES, rows, rng)
    context.evaluation.swap = swap_figures(asdict(ce), documents, texts.shape[1] - 1)


def of_one_length(chunks: list[Chunk]) -> tuple[Tensor, Tensor]:
    """Texts (S, T + 1) and their documents (S,): the chunks of at least median length, cut to it,
    so that all have the same positions.
    """
    length = median_low(map(len, chunks))
    whole = [chunk for chunk in chunks if len(chunk) >= length]
    texts = np.stack([chunk.tokens[: length + 1] for chunk in whole])
    return torch.from_numpy(texts), torch.tensor([chunk.document for chunk in whole])


def swap_figures(nats: dict[str, Tensor], document: Tensor, length: int) -> Swap:
    """Figures from the cross-entropy (S,) of S texts of ``length`` tokens, by the source of z."""

    def figure(values: Tensor) -> Estimate:
        return Estimate.by_document(values / LN2, document, length)

    figures = {source: figure(values) for source, values in nats.items()}
    own = nats.pop("own")
    differences = {f"{source}_minus_own": figure(v - own) for source, v in nats.items()}
    return Swap(texts=len(document), **figures, **differences)
