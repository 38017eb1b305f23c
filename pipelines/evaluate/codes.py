"""What the bits of z say about tokens of text, at each distance, and where the bits with the
largest KL are set.
"""

from collections.abc import Iterable
from dataclasses import asdict
from statistics import median_low

import numpy as np
import torch
from torch import Generator, Tensor

from ftmodel.analysis.information import Encoded, NetInformation, bit_information, most_certain
from ftmodel.analysis.statistics import permutation_test
from ftmodel.analysis.use_of_z import agreement, mean_over_pairs, with_permutations
from ftmodel.designs.hinge import LN2
from ftmodel.designs.sharing import at_starts
from ftmodel.inference.bounds import encode
from ftmodel.inference.swap import (
    SHARES,
    PathCE,
    another_document,
    interpolated_ce,
    posterior,
    swapped_ce,
)
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import span_starts
from pipelines.artifacts.packing import Chunk, held_out, noise_of, packed, rows_at_once
from pipelines.artifacts.results import (
    BitContext,
    Clusters,
    Estimate,
    InformativeBit,
    PathStep,
    SequenceZ,
    Swap,
    document_sums,
)
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import TextData
from pipelines.evaluate.measurement import Context
from pipelines.host.console import say

LAGS = range(33)
SUMMED_UP = (0, 1, 2, 4, 8, 16, 32)  # lags of evaluation.json; details.json has all
BITS = 4  # bits shown with contexts
MIN_KL_BITS = 1e-3  # bits per token that has a z of its own: a bit with less KL is idle
CONTEXTS = 5  # shown where a bit is set, and as many where it is not
BEFORE, AFTER = 12, 8  # tokens of a context
# stream indices of BITS: each lag has its own, single bits begin at this one
SINGLE = len(LAGS)


def bits_apply(context: Context) -> bool:
    """Whether the model has z, and the data is text, which its bits may say something about."""
    latent_of_text = isinstance(context.data, TextData) and context.model.latent is not None
    return latent_of_text and bool(context.settings.bit_tokens)


def measure_bits(context: Context) -> None:
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.bit_tokens))
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    encoded = encode_chunks(model, chunks, rows, settings.seed, context.device)
    curve = persistence(encoded, settings.seed)
    context.details.persistence = curve
    context.evaluation.persistence = {k: v for k, v in enumerate(curve) if k in SUMMED_UP}
    config = model.config
    # the KL of a code that tokens share is spread over them
    least = MIN_KL_BITS * config.latent_capacity / config.latent_bits
    context.details.bits = informative_bits(encoded, chunks, context.shards, settings.seed, least)


def encode_chunks(
    model: FreeTransformer, chunks: Iterable[Chunk], rows: int, seed: int, device: torch.device
) -> Encoded:
    """Encode chunks, each read alone, ``rows`` rows at once."""
    logits, kl, tokens, lengths, documents = [], [], [], [], []
    for batch in packed(chunks, model.config.context, rows):
        draw = noise_of(batch, model.config.latent_bits, seed, Purpose.BITS, device)
        inputs, ids = batch.inputs.to(device), batch.segment_ids.to(device)
        o, of_bits = encode(model, inputs, draw(), ids)
        starts = span_starts(model.config.latent, inputs.shape[1], device, ids)
        o = at_starts(o, starts)  # of the code that each token uses
        for chunk, (row, start) in zip(batch.chunks, batch.offsets, strict=True):
            here = row, slice(start, start + len(chunk))
            logits.append(o[here].cpu())
            kl.append(of_bits[here].cpu())
            tokens.append(torch.from_numpy(chunk.tokens))
            lengths.append(len(chunk))
            documents.append(chunk.document)
    repeats = torch.tensor(lengths)
    return Encoded(
        o=torch.cat(logits),
        kl=torch.cat(kl),
        tokens=torch.cat(tokens),
        chunk=torch.arange(len(lengths)).repeat_interleave(repeats),
        document=torch.tensor(documents).repeat_interleave(repeats),
    )


def persistence(encoded: Encoded, seed: int) -> list[NetInformation]:
    """Information, summed over bits, about the token at each lag, as far as chunks reach."""
    curve = []
    for lag in LAGS:
        measured = bit_information(encoded, lag, generator(seed, Purpose.BITS, lag))
        if measured is None:
            break
        curve.append(measured[0])
    return curve


def informative_bits(
    encoded: Encoded, chunks: list[Chunk], shards: Shards, seed: int, least: float
) -> list[InformativeBit]:
    """The bits with the largest KL, except idle ones, with less than ``least`` bits per token."""
    kl = encoded.kl.double() / LN2  # (n, H)
    ranked = kl.mean(0).argsort(descending=True, stable=True)[:BITS].tolist()
    single = []
    for lag in (0, 1):
        measured = bit_information(encoded, lag, generator(seed, Purpose.BITS, SINGLE + lag))
        assert measured is not None, "every position reads a token and predicts one"
        single.append(measured[1])
    read, predicted = single
    return [
        InformativeBit(
            bit=h,
            kl=Estimate.by_document(kl[:, h], encoded.document),
            read=read[h],
            predicted=predicted[h],
            set=contexts(encoded, chunks, shards, h, is_set=True),
            unset=contexts(encoded, chunks, shards, h, is_set=False),
        )
        for h in ranked
        if kl[:, h].mean() >= least
    ]


def contexts(
    encoded: Encoded, chunks: list[Chunk], shards: Shards, bit: int, is_set: bool
) -> list[BitContext]:
    """Where the encoder is most certain that a bit is 1, or that it is 0."""
    tokenizer, o = shards.tokenizer(), encoded.o[:, bit]
    starts = np.cumsum([0, *map(len, chunks)])
    examples = []
    for position in most_certain(o if is_set else -o, encoded.document, CONTEXTS):
        number = int(encoded.chunk[position])
        tokens, t = chunks[number].tokens.tolist(), position - int(starts[number])
        examples.append(
            BitContext(
                before=tokenizer.decode(tokens[max(0, t - BEFORE) : t]),
                token=tokenizer.decode(tokens[t : t + 1]),
                after=tokenizer.decode(tokens[t + 1 : t + 1 + AFTER]),
                probability=o[position].sigmoid().item(),
            )
        )
    return examples


# How well held-out text is rebuilt with z that is not its own.

SAMPLES = 2  # of z from each source


def swap_applies(context: Context) -> bool:
    latent_of_text = isinstance(context.data, TextData) and context.model.latent is not None
    return latent_of_text and bool(context.settings.swap_tokens)


def measure_swap(context: Context) -> None:
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


# What one z per sequence tells about held-out text: clusters by document, and interpolation.


def sequence_z_applies(context: Context) -> bool:
    return swap_applies(context) and context.model.config.latent.one_code


def measure_sequence_z(context: Context) -> None:
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.swap_tokens))
    texts, documents = of_one_length(chunks)
    if len(documents.unique()) < 2:
        return
    rng = generator(settings.seed, Purpose.SEQUENCE_Z)
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    texts = texts.to(context.device)
    q = posterior(model, texts, rows)
    donor = another_document(documents, rng)
    ce = interpolated_ce(model, texts, q, donor, rows, rng)
    of_end, length = documents[donor], texts.shape[1] - 1
    own, other = (
        Estimate.by_document(nats[0] / LN2, of, length)
        for nats, of in ((ce.start, documents), (ce.end, of_end))
    )
    context.evaluation.sequence_z = SequenceZ(
        texts=len(texts),
        own=own,
        other=other,
        path=path(ce, documents, of_end, length),
        clusters=clusters(q, documents, rng),
        **half_of_the_bits(ce, of_end),
    )


def clusters(q: Tensor, documents: Tensor, rng: Generator) -> Clusters | None:
    """How alike z is within and between documents; None if no document has two texts."""
    _, document, sizes = documents.unique(return_inverse=True, return_counts=True)
    if sizes.max() < 2:
        return None
    agree = agreement(q)
    same, different = (
        Estimate(*mean_over_pairs(agree, document, alike)) for alike in (True, False)
    )
    chance = permutation_test(with_permutations(agree, document, rng))
    return Clusters(same, different, chance.null_95, chance.p_value)


def path(ce: PathCE, documents: Tensor, of_end: Tensor, length: int) -> list[PathStep]:
    def change(nats: Tensor, of: Tensor, step: int) -> Estimate:
        return Estimate.by_document((nats[step] - nats[0]) / LN2, of, length)

    return [
        PathStep(
            share=share,
            start=change(ce.start, documents, step),
            end=change(ce.end, of_end, step),
            random=change(ce.random, documents, step),
        )
        for step, share in enumerate(SHARES)
        if step
    ]


def half_of_the_bits(ce: PathCE, documents: Tensor) -> dict[str, Estimate]:
    """What texts of ``documents`` (S,) gain from half of the bits of their own z, and from as many
    random bits, divided by what they gain from all. Empty unless that gain is more than two
    standard errors.
    """
    middle = len(SHARES) // 2
    half, random, whole = (
        document_sums(ce.end[0] - nats, documents)[0]
        for nats in (ce.end[middle], ce.end_random[middle], ce.end[-1])
    )
    gain = Estimate.over_documents(whole)
    if not gain.mean > 2 * gain.se:
        return {}
    gains = {"half": half, "half_random": random, "half_minus_random": half - random}
    return {name: Estimate.over_documents(part, whole) for name, part in gains.items()}
