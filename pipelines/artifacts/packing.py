"""Held-out documents, chunked and packed into rows for scoring.

A document, [end of text] ids … [end of text], is cut into chunks of at most the model's context.
Each is predicted from its own tokens only, without the text before it. That is harder than reading
on, and not equally so for all arms. A Free Transformer's encoder was trained on full windows
(within documents where the model masks them). On the short chunks at the ends of documents its z
may suit the text less and the bounds be looser. A baseline has no encoder. A process's row is one
chunk.

Everything is a stream: at most one batch of chunks is in memory at a time.
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
    tokens: np.ndarray  # (length + 1,): the first is only read, the last only predicted

    def __len__(self) -> int:
        """Number of predicted tokens."""
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
    """Chunks of the validation part, in order: all of them, or evenly spaced ones that predict at
    most ``tokens`` tokens; at least one chunk.
    """

    def all_chunks() -> Iterator[Chunk]:
        return chunks(shards.documents("validation"), context)

    if tokens is None:
        yield from all_chunks()
        return
    # Two readings: the first takes only the lengths, which decide how many chunks fit into the cap
    lengths = np.fromiter((len(chunk) for chunk in all_chunks()), np.int64)
    total = n = len(lengths)
    indices = np.arange(total)
    # n evenly spaced chunks may be longer than the mean, so fewer are tried until they fit
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
    segment_ids: Tensor  # (B, T): the number of each token's chunk, from 1; 0 for padding


def packed(
    stream: Iterable[Chunk], context: int, rows: int, alone: bool = False
) -> Iterator[Batch]:
    """Batches of at most ``rows`` rows. A chunk goes into the first row with room for it or, with
    ``alone``, into a row of its own, as a random prefix needs.
    """
    batch: list[Chunk] = []
    offsets: list[tuple[int, int]] = []
    filled = [0] * rows  # tokens in each row so far
    for chunk in stream:
        max_filled = 0 if alone else context - len(chunk)
        row = next((r for r in range(rows) if filled[r] <= max_filled), None)
        if row is None:  # no row has room: the batch is full, and the chunk begins the next one
            yield lay_out(batch, offsets)
            batch, offsets = [], []
            filled = [0] * rows
            row = 0
        batch.append(chunk)
        offsets.append((row, filled[row]))
        filled[row] += len(chunk)
    if batch:
        yield lay_out(batch, offsets)


def lay_out(batch: list[Chunk], offsets: list[tuple[int, int]]) -> Batch:
    """The batch's tensors (B, T), as wide as its fullest row."""
    rows = 1 + max(row for row, _ in offsets)
    width = max(column + len(chunk) for chunk, (_, column) in zip(batch, offsets, strict=True))
    inputs, targets, segment_ids = torch.zeros(3, rows, width, dtype=torch.long)
    for i, (chunk, (row, column)) in enumerate(zip(batch, offsets, strict=True), 1):
        tokens = torch.from_numpy(chunk.tokens)
        columns = slice(column, column + len(chunk))
        inputs[row, columns] = tokens[:-1]
        targets[row, columns] = tokens[1:]
        segment_ids[row, columns] = i
    return Batch(batch, offsets, inputs, targets, segment_ids)


def noise_of(
    batch: Batch, bits: int, seed: int, purpose: Purpose, device: torch.device
) -> Callable[[], Tensor]:
    """A function whose every call gives new noise (B, T, bits), uniform on [0, 1), for a batch's z.

    Each chunk has its own stream, by its document and index, so its noise does not depend on what
    it is packed with.
    """
    streams = [philox(seed, purpose, c.document, c.index) for c in batch.chunks]

    def draw() -> Tensor:
        noise = np.zeros((*batch.inputs.shape, bits), np.float32)
        for chunk, (row, start), stream in zip(batch.chunks, batch.offsets, streams, strict=True):
            stream.random(out=noise[row, start : start + len(chunk)], dtype=np.float32)
        return torch.from_numpy(noise).to(device)

    return draw
