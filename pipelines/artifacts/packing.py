"""The held-out documents as a model is asked about them: in pieces, several packed into one row.

A document, [end of text] ids … [end of text], is cut into pieces of at most the model's context,
each predicted from its own tokens only: what came before its first one is not seen. That is harder
than reading on, and not alike for every arm: a Free Transformer's encoder, trained on full
windows (within documents where the model masks them), also reads the short pieces at the ends of
documents, where its z may suit the text less and the bounds be looser; a baseline has no encoder.
A row of a process is one piece.

Everything is a stream: no more than one batch of pieces is in memory at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, philox


@dataclass
class Piece:
    document: int  # its number in the validation part
    number: int  # among the pieces of the document
    tokens: np.ndarray  # (length + 1,): the last one is predicted, the first one is not

    def __len__(self) -> int:
        """Predicted tokens."""
        return len(self.tokens) - 1


def pieces(documents: Iterable[np.ndarray], context: int) -> Iterator[Piece]:
    """All pieces of documents, in their order."""
    for i, tokens in enumerate(documents):
        for number, start in enumerate(range(0, len(tokens) - 1, context)):
            yield Piece(i, number, tokens[start : start + context + 1])


def held_out(shards: Shards, context: int, tokens: int | None) -> Iterator[Piece]:
    """Pieces of the validation part, in its order: all, or, where they would predict more than
    ``tokens``, so many of them, evenly spaced, that they do not; but one at least.
    """

    def every() -> Iterator[Piece]:
        return pieces(shards.documents("validation"), context)

    if tokens is None:
        yield from every()
        return
    lengths = np.fromiter((len(piece) for piece in every()), np.int64)
    total = n = len(lengths)
    taken = np.arange(total)
    while n > 1 and (size := int(lengths[taken].sum())) > tokens:
        n = max(1, n * tokens // size)
        taken = np.arange(n) * total // n
    wanted = set(taken.tolist())
    yield from (piece for i, piece in enumerate(every()) if i in wanted)


@dataclass
class Batch:
    """Pieces packed into rows of T tokens; numbers (B, T) says which piece, from 1 on, a token
    belongs to, and 0 where there is none.
    """

    pieces: list[Piece]
    places: list[tuple[int, int]]  # row and column of the first token of each piece
    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    numbers: Tensor  # (B, T)


def packed(stream: Iterable[Piece], context: int, rows: int) -> Iterator[Batch]:
    """Batches of at most ``rows`` rows; each piece lies in the first row that has room for it."""
    batch: list[Piece] = []
    places: list[tuple[int, int]] = []
    filled = [0] * rows
    for piece in stream:
        row = next((r for r in range(rows) if filled[r] + len(piece) <= context), None)
        if row is None:
            yield laid_out(batch, places)
            batch, places, filled, row = [], [], [0] * rows, 0
        batch.append(piece)
        places.append((row, filled[row]))
        filled[row] += len(piece)
    if batch:
        yield laid_out(batch, places)


def laid_out(batch: list[Piece], places: list[tuple[int, int]]) -> Batch:
    ends = [(row, column + len(p)) for p, (row, column) in zip(batch, places, strict=True)]
    shape = 1 + max(row for row, _ in ends), max(end for _, end in ends)
    inputs, targets, numbers = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    for i, (piece, (row, column)) in enumerate(zip(batch, places, strict=True), 1):
        tokens = torch.from_numpy(piece.tokens)
        part = row, slice(column, column + len(piece))
        inputs[part], targets[part], numbers[part] = tokens[:-1], tokens[1:], i
    return Batch(batch, places, inputs, targets, numbers)


def noise_of(
    batch: Batch, bits: int, seed: int, purpose: Purpose, device: torch.device
) -> Callable[[], Tensor]:
    """Gives, at each call, new noise (B, T, bits), uniform on [0, 1), for the z of a batch.

    The noise of a piece is a stream of its own, by its document and number: it does not depend on
    what the piece is packed with, nor on how often it is asked for.
    """
    streams = [philox(seed, purpose, p.document, p.number) for p in batch.pieces]

    def draw() -> Tensor:
        noise = np.zeros((*batch.inputs.shape, bits), np.float32)
        for piece, (row, start), stream in zip(batch.pieces, batch.places, streams, strict=True):
            stream.random(out=noise[row, start : start + len(piece)], dtype=np.float32)
        return torch.from_numpy(noise).to(device)

    return draw
