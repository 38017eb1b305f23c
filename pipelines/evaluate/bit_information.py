"""What the bits of z say about tokens of text, at each distance, and where the bits with the
largest KL are set.
"""

from collections.abc import Iterable

import numpy as np
import torch

from ftmodel.analysis.bit_information import Encoded, NetInformation, bit_information, most_certain
from ftmodel.designs.hinge import LN2
from ftmodel.designs.sharing import at_starts, span_starts
from ftmodel.inference.encoding import encode
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import BitContext, InformativeBit
from pipelines.artifacts.packing import Chunk, held_out, noise_of, packed, rows_at_once
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import TextData
from pipelines.evaluate.measurement import Context

LAGS = range(33)
SUMMED_UP = (0, 1, 2, 4, 8, 16, 32)  # lags of evaluation.json; details.json has all
BITS = 4  # bits shown with contexts
MIN_KL_BITS = 1e-3  # bits per token that has a z of its own: a bit with less KL is idle
CONTEXTS = 5  # shown where a bit is set, and as many where it is not
BEFORE, AFTER = 12, 8  # tokens of a context
# stream indices of BITS: each lag has its own, single bits begin at this one
SINGLE = len(LAGS)


def applies(context: Context) -> bool:
    """Whether the model has z, and the data is text, which its bits may say something about."""
    latent_of_text = isinstance(context.data, TextData) and context.model.latent is not None
    return latent_of_text and bool(context.settings.bit_tokens)


def measure(context: Context) -> None:
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
