"""What z says about text.

`measure_bits`: the information in z about tokens at each distance, and where the bits with the
largest KL are set. `measure_swap`: how well text is rebuilt with z that is not its own.
`measure_sequence_z`, where a sequence has one z: clusters by document, and interpolation.
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
SWAP_DRAWS = 2  # of z from each source


def measure_bits(
    context: Context,
) -> tuple[dict[int, NetInformation], list[NetInformation], list[InformativeBit]]:
    """Measure the information of all bits about the tokens at some lags, and at each lag from 0
    on, and of the bits with the largest KL.
    """
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.bit_tokens))
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    encoded = encode_chunks(model, chunks, rows, settings.seed, context.device)
    curve = persistence(encoded, settings.seed)
    # the KL of a code that tokens share is spread over them
    least = MIN_KL_BITS * model.config.latent_capacity / model.config.latent_bits
    bits = informative_bits(encoded, chunks, context.shards, settings.seed, least)
    return {lag: curve[lag] for lag in SUMMED_UP if lag < len(curve)}, curve, bits


def encode_chunks(
    model: FreeTransformer, chunks: Iterable[Chunk], rows: int, seed: int, device: torch.device
) -> Encoded:
    """Encode chunks, each read alone, ``rows`` rows at once."""
    logits, kl, tokens, lengths, documents = [], [], [], [], []
    for batch in packed(chunks, model.config.context, rows):
        draw = noise_of(batch, model.config.latent_bits, seed, Purpose.BITS, device)
        inputs, ids = batch.inputs.to(device), batch.segment_ids.to(device)
        o, kl_of_bits = encode(model, inputs, draw(), ids)  # (rows, T, H) each
        starts = span_starts(model.config.latent, inputs.shape[1], device, ids)
        o = at_starts(o, starts)  # of the code that each token uses
        for chunk, (row, start) in zip(batch.chunks, batch.offsets, strict=True):
            tokens_of_chunk = row, slice(start, start + len(chunk))
            logits.append(o[tokens_of_chunk].cpu())
            kl.append(kl_of_bits[tokens_of_chunk].cpu())
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
    about_token = []
    for lag in (0, 1):
        measured = bit_information(encoded, lag, generator(seed, Purpose.BITS, SINGLE + lag))
        assert measured is not None, "every position reads a token and predicts one"
        about_token.append(measured[1])
    read, predicted = about_token
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
    tokenizer = shards.tokenizer()
    o = encoded.o[:, bit]
    starts = np.cumsum([0, *map(len, chunks)])
    examples = []
    for position in most_certain(o if is_set else -o, encoded.document, CONTEXTS):
        number = int(encoded.chunk[position])
        tokens = chunks[number].tokens.tolist()
        t = position - int(starts[number])
        examples.append(
            BitContext(
                before=tokenizer.decode(tokens[max(0, t - BEFORE) : t]),
                token=tokenizer.decode(tokens[t : t + 1]),
                after=tokenizer.decode(tokens[t + 1 : t + 1 + AFTER]),
                probability=o[position].sigmoid().item(),
            )
        )
    return examples


def measure_swap(context: Context) -> Swap | None:
    """Measure how well texts are rebuilt with z of other sources; None, which is said, if all are
    of one document.
    """
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.swap_tokens))
    texts, documents = of_one_length(chunks)
    if len(documents.unique()) < 2:
        say(f"no swap of z: evaluation.swap_tokens={settings.swap_tokens} are of one document")
        return None
    rng = generator(settings.seed, Purpose.SWAP)
    donor = another_document(documents, rng)
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    ce = swapped_ce(model, texts.to(context.device), donor, SWAP_DRAWS, rows, rng)
    return swap_figures(asdict(ce), documents, texts.shape[1] - 1)


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
    differences = {
        f"{source}_minus_own": figure(values - nats["own"])
        for source, values in nats.items()
        if source != "own"
    }
    return Swap(texts=len(document), **figures, **differences)


def measure_sequence_z(context: Context) -> SequenceZ | None:
    """Measure what one z per sequence tells; None if there is only one document."""
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.swap_tokens))
    texts, documents = of_one_length(chunks)
    if len(documents.unique()) < 2:
        return None
    rng = generator(settings.seed, Purpose.SEQUENCE_Z)
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    texts = texts.to(context.device)
    q = posterior(model, texts, rows)
    donor = another_document(documents, rng)
    ce = interpolated_ce(model, texts, q, donor, rows, rng)
    of_end = documents[donor]
    length = texts.shape[1] - 1
    return SequenceZ(
        texts=len(texts),
        own=Estimate.by_document(ce.start[0] / LN2, documents, length),
        other=Estimate.by_document(ce.end[0] / LN2, of_end, length),
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
    same = Estimate(*mean_over_pairs(agree, document, True))
    different = Estimate(*mean_over_pairs(agree, document, False))
    chance = permutation_test(with_permutations(agree, document, rng))
    return Clusters(same, different, chance.null_95, chance.p_value)


def path(ce: PathCE, documents: Tensor, of_end: Tensor, length: int) -> list[PathStep]:
    """The steps after the first; ``of_end`` are the documents of the texts where paths end."""

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

    def gain(nats: Tensor) -> Tensor:
        return document_sums(ce.end[0] - nats, documents)[0]

    half, random, whole = gain(ce.end[middle]), gain(ce.end_random[middle]), gain(ce.end[-1])
    of_all_bits = Estimate.over_documents(whole)
    if not of_all_bits.mean > 2 * of_all_bits.se:
        return {}
    gains = {"half": half, "half_random": random, "half_minus_random": half - random}
    return {name: Estimate.over_documents(part, whole) for name, part in gains.items()}
