"""Writes the parts of a corpus from the segments that its documents were read into."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.artifacts import corpus
from pipelines.artifacts.corpus import SPLITS, Document
from pipelines.data.mixture import Mixture, Tally
from pipelines.data.segments import DOCUMENT, Segment

BLOCK = 1 << 20  # documents that are looked at together


@dataclass
class PartFile:
    """A task: write a part. Its documents are those in ``rows`` of ``files[which]``."""

    target: Path
    files: list[Path]
    which: NDArray[np.int64]
    rows: NDArray[np.int64]
    bytes: int


def write(task: PartFile) -> Iterator[int]:
    """Write a part, unless it exists; raises UserError or OSError."""
    if not task.target.exists():
        content: list[Document] = [("", b"")] * len(task.rows)
        for number, file in enumerate(task.files):
            mine = np.flatnonzero(task.which == number)
            for at, document in zip(
                mine.tolist(), corpus.documents(file, task.rows[mine]), strict=True
            ):
                content[at] = document
        corpus.write_part(task.target, content)
    yield task.bytes


def part_files(mixture: Mixture, folder: Path, tally: Tally) -> Iterator[PartFile]:
    """Yield the parts to write to ``folder``, in any order; counts all documents in ``tally``."""
    every = [segment for part in mixture.segments for segment in part]
    starts = np.cumsum([0, *(segment.documents for segment in every)])
    place_of = starts[np.cumsum([0, *map(len, mixture.segments)])][:-1]  # each part's next document
    waiting = [Waiting(folder, split, every) for split in SPLITS]
    for begin in range(0, len(mixture.turns), BLOCK):
        part = mixture.turns[begin : begin + BLOCK]
        places = np.empty(len(part), np.int64)
        for number in range(len(mixture.segments)):
            mine = np.flatnonzero(part == number)
            places[mine] = place_of[number] + np.arange(len(mine))
            place_of[number] += len(mine)
        which = np.searchsorted(starts, places, side="right") - 1
        documents, rows = np.empty(len(part), DOCUMENT), np.empty(len(part), np.int64)
        for number in np.unique(which).tolist():
            mine = np.flatnonzero(which == number)
            table = every[number].table()
            here = places[mine] - starts[number]
            documents[mine], rows[mine] = table[here], rows_of(table)[here]
        kept = ~mixture.dropped[places] & (documents["size"] > 0)
        tally.add(part, documents, kept)
        for number in range(len(SPLITS)):
            mine = np.flatnonzero(kept & (documents["held_out"] == number))
            yield from waiting[number].add(which[mine], rows[mine], documents["size"][mine])
    for each in waiting:
        yield from each.rest()
    tally.ran_out = mixture.ran_out


def rows_of(table: NDArray[Any]) -> NDArray[np.int64]:
    """Row of each document in its segment's file for its split, where empty documents have none."""
    rows = np.empty(len(table), np.int64)
    for number in range(len(SPLITS)):
        mine = table["held_out"] == number
        rows[mine] = np.cumsum(table["size"][mine] > 0) - 1
    return rows


class Waiting:
    """A split's documents that do not fill a part yet."""

    def __init__(self, folder: Path, split: str, segments: list[Segment]) -> None:
        self.folder, self.split, self.segments = folder, split, segments
        self.number, self.open = 0, np.empty((3, 0), np.int64)

    def add(self, *columns: NDArray[Any]) -> Iterator[PartFile]:
        """Add documents, by segment, row and size; yields parts that are full."""
        self.open = np.hstack([self.open, np.array(columns, np.int64)])
        while self.open[2].sum() >= corpus.PART_BYTES:
            last = np.searchsorted(np.cumsum(self.open[2]), corpus.PART_BYTES)
            yield self.part(int(last) + 1)

    def rest(self) -> Iterator[PartFile]:
        if self.open.size:
            yield self.part(self.open.shape[1])

    def part(self, end: int) -> PartFile:
        (which, rows, size), self.open = self.open[:, :end], self.open[:, end:]
        target = corpus.part_path(self.folder, self.split, self.number)
        self.number += 1
        segments, number = np.unique(which, return_inverse=True)
        files = [self.segments[i].file(f"{self.split}.parquet") for i in segments.tolist()]
        return PartFile(target, files, number, rows, int(size.sum()))
