"""Mixes documents of several sources into one corpus: by weight, without duplicates, each in the
split that its hash decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.artifacts.corpus import SPLITS
from pipelines.common.errors import UserError
from pipelines.config.data import TextData
from pipelines.data.duplicates import Duplicates
from pipelines.data.segments import Segment


@dataclass
class Tally:
    """What became of the documents that were read."""

    counts: NDArray[np.int64]  # kept documents and bytes, (2, parts, splits)
    duplicates: int = 0
    empty: int = 0
    ran_out: str | None = None  # the part that was due and had no more

    def add(self, part: NDArray[Any], documents: NDArray[Any], kept: NDArray[np.bool_]) -> None:
        """Count documents (n,), of DOCUMENT, with each one's part and whether it is kept."""
        size = documents["size"].astype(np.int64)
        self.empty += int((size == 0).sum())
        self.duplicates += int(((size > 0) & ~kept).sum())
        place = part[kept], documents["held_out"][kept].astype(np.int64)
        np.add.at(self.counts[0], place, 1)
        np.add.at(self.counts[1], place, size[kept])

    def lines(self, data: TextData) -> Iterator[str]:
        for split, (count, size) in zip(SPLITS, self.counts.sum(1).T.tolist(), strict=True):
            yield f"{split}: {count:,} documents, {size:,} bytes"
        by_part = dict(zip(data.parts, self.counts.sum(2).T.tolist(), strict=True))
        if len(by_part) > 1:
            for part, (count, size) in by_part.items():
                share = size / self.counts[1].sum()
                yield f"of {part}: {count:,} documents, {size:,} bytes ({share:.1%})"
        if self.duplicates or self.empty:
            yield f"left out: {self.duplicates:,} duplicates, {self.empty:,} empty documents"
        if (last := self.ran_out) and (len(data.parts) > 1 or data.max_bytes):
            share = data.parts[last].weight / sum(each.weight for each in data.parts.values())
            due = f" of {round(data.max_bytes * share):,}" if data.max_bytes else ""
            ended = ", which ended the mixture" * (len(data.parts) > 1)
            yield f"part {last} ran out at {by_part[last][1]:,}{due} bytes{ended}"


class Short(Exception):
    """More of the sources has to be read before the mixture is known."""


@dataclass
class Mixture:
    """The documents of the corpus, in order. The next one always comes from the part with the
    fewest bytes for its weight, until that part ends or ``max_bytes`` is reached.
    """

    segments: list[list[Segment]]  # of each part
    turns: NDArray[np.uint8]  # (documents read,): the part of each, by its number
    dropped: NDArray[np.bool_]  # (documents,): by place, whether it is a copy
    ran_out: str | None  # the part that was due and had no more
    bytes: int


def mix(
    data: TextData, segments: list[list[Segment]], ended: list[bool], found: Duplicates
) -> Mixture:
    """Mix the parts' segments; ``ended`` says whether a part has no more. Raises Short."""
    weights = [part.weight for part in data.parts.values()]
    limit = inf if data.max_bytes is None else data.max_bytes
    starts = np.cumsum([0, *(sum(s.documents for s in part) for part in segments)])
    readers = [
        counting(part, start, found) for part, start in zip(segments, starts.tolist(), strict=False)
    ]
    dropped, taken = found.copies, bytearray(int(found.group.max(initial=-1)) + 1)
    turns, total, ran_out = bytearray(), 0, None
    sizes, due_at = [0] * len(weights), [0.0] * len(weights)
    while total < limit:
        due = min(range(len(due_at)), key=due_at.__getitem__)
        document = next(readers[due], None)
        if document is None:
            if not ended[due]:
                raise Short
            ran_out = [*data.parts][due]
            break
        turns.append(due)
        place, size, group = document
        if size and group >= 0:
            if taken[group]:
                dropped[place], size = True, 0
            taken[group] = True
        sizes[due] += size
        total += size
        due_at[due] = sizes[due] / weights[due]
    return Mixture(segments, np.frombuffer(turns, np.uint8), dropped, ran_out, total)


def counting(
    segments: list[Segment], start: int, found: Duplicates
) -> Iterator[tuple[int, int, int]]:
    """Yield place, size and group of each document of a part. The size is 0 if it does not count,
    the group −1 if no other part has it.
    """
    for segment in segments:
        end = start + segment.documents
        size = np.where(found.copies[start:end], 0, segment.table()["size"])
        group = np.full(segment.documents, -1)
        first, last = np.searchsorted(found.shared, (start, end))
        group[found.shared[first:last] - start] = found.group[first:last]
        yield from zip(range(start, end), size.tolist(), group.tolist(), strict=True)
        start = end


def check_mixture(key: str, data: TextData, tally: Tally) -> None:
    """Raise UserError if a split has no document."""
    of_splits = tally.counts[0].sum(0).tolist()
    count = sum(of_splits)
    if not count:
        raise UserError(f"{key}.parts: no text; empty documents: {tally.empty:,}")
    for split, word, kept in zip(SPLITS, ("lower", "raise"), of_splits, strict=True):
        if not kept:
            advice = (
                f"{word} it" if count > 1 else "cut it into several, one for each part at least"
            )
            raise UserError(
                f"{key}.validation_share: {data.validation_share} of {count:,} "
                f"document{'s' * (count > 1)} leaves the {split} part empty; {advice}"
            )
