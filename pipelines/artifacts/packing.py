"""Held-out documents, chunked and packed into rows for scoring.

A document, [end of text] ids … [end of text], is cut into chunks of at most the model's context,
each predicted from its own tokens only: what came before its first one is not seen. That is harder
than reading on, and not alike for every arm: a Free Transformer's encoder, trained on full
windows (within documents where the model masks them), also reads the short chunks at the ends of
documents, where its z may suit the text less and the bounds be looser; a baseline has no encoder.
A row of a process is one chunk.

Everything is a stream: no more than one batch of chunks is in memory at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, philox


@dataclass
class Chunk:
    document: int  # its index in the validation part
    index: int  # among the chunks of the document
    tokens: np.ndarray  # (length + 1,): the last one is predicted, the first one is not

    def __len__(self) -> int:
        """Predicted tokens."""
        return len(self.tokens) - 1


def chunks(documents: Iterable[np.ndarray], context: int) -> Iterator[Chunk]:
    """All chunks of documents, in their order."""
    for i, tokens in enumerate(documents):
        for index, start in enumerate(range(0, len(tokens) - 1, context)):
            yield Chunk(i, index, tokens[start : start + context + 1])


def rows_at_once(batch_tokens: int, length: int) -> int:
    """How many rows of ``length`` tokens are scored at once."""
    return max(1, batch_tokens // length)


def held_out(shards: Shards, context: int, tokens: int | None) -> Iterator[Chunk]:
    """Chunks of the validation part, in its order: all, or, where these would predict more than
    ``tokens``, evenly spaced ones that do not; but one at least.
    """

    def all_chunks() -> Iterator[Chunk]:
        return chunks(shards.documents("validation"), context)

    if tokens is None:
        yield from all_chunks()
        return
    lengths = np.fromiter((len(chunk) for chunk in all_chunks()), np.int64)
    total = n = len(lengths)
    indices = np.arange(total)
    while n > 1 and (size := int(lengths[indices].sum())) > tokens:
        n = max(1, n * tokens // size)
        indices = np.arange(n) * total // n
    chosen = set(indices.tolist())
    yield from (chunk for i, chunk in enumerate(all_chunks()) if i in chosen)


@dataclass
class Batch:
    """Chunks packed into rows of T tokens."""

    chunks: list[Chunk]
    offsets: list[tuple[int, int]]  # row and column of the first token of each chunk
    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    segment_ids: Tensor  # (B, T): of which chunk, from 1 on, a token is; 0 for padding


def packed(
    stream: Iterable[Chunk], context: int, rows: int, alone: bool = False
) -> Iterator[Batch]:
    """Batches of at most ``rows`` rows; each chunk lies in the first row that has room for it, or
    ``alone`` in a row, as a random prefix asks for.
    """
    batch: list[Chunk] = []
    offsets: list[tuple[int, int]] = []
    filled = [0] * rows
    for chunk in stream:
        most = 0 if alone else context - len(chunk)
        row = next((r for r in range(rows) if filled[r] <= most), None)
        if row is None:
            yield lay_out(batch, offsets)
            batch, offsets, filled, row = [], [], [0] * rows, 0
        batch.append(chunk)
        offsets.append((row, filled[row]))
        filled[row] += len(chunk)
    if batch:
        yield lay_out(batch, offsets)


def lay_out(batch: list[Chunk], offsets: list[tuple[int, int]]) -> Batch:
    ends = [(row, column + len(p)) for p, (row, column) in zip(batch, offsets, strict=True)]
    shape = 1 + max(row for row, _ in ends), max(end for _, end in ends)
    inputs, targets, segment_ids = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    for i, (chunk, (row, column)) in enumerate(zip(batch, offsets, strict=True), 1):
        tokens = torch.from_numpy(chunk.tokens)
        part = row, slice(column, column + len(chunk))
        inputs[part], targets[part], segment_ids[part] = tokens[:-1], tokens[1:], i
    return Batch(batch, offsets, inputs, targets, segment_ids)


def noise_of(
    batch: Batch, bits: int, seed: int, purpose: Purpose, device: torch.device
) -> Callable[[], Tensor]:
    """Gives, at each call, new noise (B, T, bits), uniform on [0, 1), for the z of a batch.

    The noise of a chunk is a stream of its own, by its document and index: it does not depend on
    what the chunk is packed with, nor on how often it is asked for.
    """
    streams = [philox(seed, purpose, p.document, p.index) for p in batch.chunks]

    def draw() -> Tensor:
        noise = np.zeros((*batch.inputs.shape, bits), np.float32)
        for chunk, (row, start), stream in zip(batch.chunks, batch.offsets, streams, strict=True):
            stream.random(out=noise[row, start : start + len(chunk)], dtype=np.float32)
        return torch.from_numpy(noise).to(device)

    return draw
