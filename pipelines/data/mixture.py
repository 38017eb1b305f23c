"""Mixes documents of several sources into one corpus: by weight, each in the split that its hash
decides. First finds documents that repeat an earlier one. Hashes are split into partitions that fit
in memory, so memory does not grow with the corpus. Then writes the corpus part by part, from the
segments that its documents were read into.

A document's place is its number among all that were read, part after part of the mixture.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.artifacts import corpus
from pipelines.artifacts.corpus import Document
from pipelines.cluster.workers import run_tasks
from pipelines.config.data import TextData
from pipelines.data.segments import DOCUMENT, Segment
from pipelines.host.errors import UserError
from pipelines.host.files import SPLITS

PARTITION_DOCUMENTS = 1 << 21  # on average: a quarter of a gigabyte while they are sorted
BLOCK_DOCUMENTS = 1 << 20  # that are looked at together

Places = NDArray[np.int64]


@dataclass
class Partition:
    """A task: documents whose hash lies in [number, number + 1) / count of the range of hashes."""

    number: int
    count: int
    hashes: list[Path]  # a file for each segment
    starts: Places  # place of the first document of each segment
    parts: Places  # place of the first document of each part of the mixture


@dataclass
class Copies:
    """Copies in a partition. Groups of equal documents in several parts are numbered from 0."""

    within: Places  # copies of an earlier document of the same part
    shared: Places  # the first of each part, of documents that several parts have
    group: Places  # the number for each of ``shared``
    groups: int


@dataclass
class Duplicates:
    """Copies among all documents that were read."""

    copies: NDArray[np.bool_]  # (documents,): whether it repeats one of its part
    shared: Places  # in order, the first of each part, of documents that several parts have
    group: Places  # for each of ``shared``: equal ones have one number


def find_duplicates(segments: list[list[Segment]], cores: int, wanted: bool) -> Duplicates:
    """Find the duplicates in the segments of each part; none unless ``wanted``."""
    every = [segment for part in segments for segment in part]
    # Place of the first document of each segment, and of the first one of each part
    starts = np.cumsum([0, *(segment.documents for segment in every)])
    parts = starts[np.cumsum([0, *map(len, segments)])][:-1]
    copies = np.zeros(starts[-1], bool)
    count = -(-len(copies) // PARTITION_DOCUMENTS) if wanted else 0
    hashes = [segment.file("hashes.npy") for segment in every]
    tasks = (Partition(i, count, hashes, starts[:-1], parts) for i in range(count))
    shared, group = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    groups = 0  # found so far: each partition numbers its own from 0
    for _, found in run_tasks(find_copies, tasks, cores):
        copies[found.within] = True
        shared.append(found.shared)
        group.append(groups + found.group)
        groups += found.groups
    places = np.concatenate(shared)
    order = np.argsort(places)
    return Duplicates(copies, places[order], np.concatenate(group)[order])


def find_copies(task: Partition) -> Iterator[Copies]:
    """Yield the copies of one partition. Arrays are (n,), for its n documents."""
    # A segment's hashes are in order, so those of the partition are one slice of its file
    found, places = [], []
    for path, start in zip(task.hashes, task.starts.tolist(), strict=True):
        hashes = np.load(path, mmap_mode="r")
        begin, end = (boundary(hashes[0], task, i) for i in (task.number, task.number + 1))
        inside = slice(begin, end)
        found.append(np.array(hashes[:2, inside]))
        places.append(start + hashes[2, inside].astype(np.int64))
    first, second = np.concatenate(found, axis=1)  # both halves of the hashes
    place = np.concatenate(places)
    # Equal documents side by side, in order of their places
    order = np.lexsort((place, second, first))
    first, second, place = first[order], second[order], place[order]
    part = np.searchsorted(task.parts, place, side="right")
    equal = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    # A copy equals the document before it, and is of the same part
    copy = np.zeros(len(place), bool)
    copy[1:] = equal & (part[1:] == part[:-1])
    group = np.zeros(len(place), np.int64)
    group[1:] = np.cumsum(~equal)
    # Where neighbours are equal but of two parts, several parts share the text: of each of them its
    # first document counts
    several = np.unique(group[1:][equal & ~copy[1:]])
    shared = ~copy & np.isin(group, several)
    numbers = np.searchsorted(several, group[shared])
    yield Copies(place[copy], place[shared], numbers, len(several))


def boundary(first: NDArray[np.uint64], task: Partition, number: int) -> int:
    """Index at which a partition begins in sorted hashes."""
    if number == task.count:
        return len(first)
    return int(np.searchsorted(first, np.uint64((number << 64) // task.count)))


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
        part_and_split = part[kept], documents["held_out"][kept].astype(np.int64)
        np.add.at(self.counts[0], part_and_split, 1)
        np.add.at(self.counts[1], part_and_split, size[kept])

    def lines(self, data: TextData) -> Iterator[str]:
        """The lines that the stage prints."""
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
            ended = ", which ended the mixture" if len(data.parts) > 1 else ""
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
    # The place of each part's first document: (parts,)
    starts = np.cumsum([0, *(sum(s.documents for s in part) for part in segments)])[:-1]
    readers = [
        places_and_sizes(part, start, found)
        for part, start in zip(segments, starts.tolist(), strict=True)
    ]
    dropped = found.copies
    n_groups = int(found.group.max(initial=-1)) + 1
    taken = bytearray(n_groups)  # whether the mixture has a document of a group of equal ones
    turns = bytearray()
    ran_out = None
    total = 0  # bytes of the mixture
    sizes = [0] * len(weights)  # bytes of each part
    due_at = [0.0] * len(weights)  # the same, divided by its weight
    while total < limit:
        # The next document comes from the part with the fewest bytes for its weight
        due = min(range(len(due_at)), key=due_at.__getitem__)
        document = next(readers[due], None)
        if document is None:
            if not ended[due]:
                raise Short
            ran_out = [*data.parts][due]
            break
        # A document without text, or a copy within its part, takes its turn but adds no bytes
        turns.append(due)
        place, size, group = document
        if size and group >= 0:
            # Several parts have this text: the part whose turn comes first keeps it
            if taken[group]:
                dropped[place] = True
                size = 0
            taken[group] = True
        sizes[due] += size
        total += size
        due_at[due] = sizes[due] / weights[due]
    return Mixture(segments, np.frombuffer(turns, np.uint8), dropped, ran_out, total)


def places_and_sizes(
    segments: list[Segment], start: int, found: Duplicates
) -> Iterator[tuple[int, int, int]]:
    """Yield place, size and group of each document of a part. The size is 0 if it does not count,
    the group −1 if no other part has it.
    """
    for segment in segments:
        # Arrays (documents of the segment,)
        end = start + segment.documents
        size = np.where(found.copies[start:end], 0, segment.table()["size"])
        group = np.full(segment.documents, -1)
        first, last = np.searchsorted(found.shared, (start, end))
        group[found.shared[first:last] - start] = found.group[first:last]
        yield from zip(range(start, end), size.tolist(), group.tolist(), strict=True)
        start = end


def check_mixture(key: str, data: TextData, tally: Tally) -> None:
    """Raise UserError if a split has no document."""
    counts = tally.counts[0].sum(0).tolist()  # (splits,)
    total = sum(counts)
    if not total:
        raise UserError(f"{key}.parts: no text; empty documents: {tally.empty:,}")
    for split, change, count in zip(SPLITS, ("lower", "raise"), counts, strict=True):
        if not count:
            if total > 1:
                documents, advice = "documents", f"{change} it"
            else:
                documents = "document"
                advice = "cut it into several, one for each part at least"
            raise UserError(
                f"{key}.validation_share: {data.validation_share} of {total:,} {documents} leaves "
                f"the {split} part empty; {advice}"
            )


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
    for begin in range(0, len(mixture.turns), BLOCK_DOCUMENTS):
        part = mixture.turns[begin : begin + BLOCK_DOCUMENTS]  # (n,), as all arrays of a block
        # The place of each document: a part's documents come in order, so the next of that part
        places = np.empty(len(part), np.int64)
        for number in range(len(mixture.segments)):
            mine = np.flatnonzero(part == number)
            places[mine] = place_of[number] + np.arange(len(mine))
            place_of[number] += len(mine)
        # Its segment, and from there its size, its split and its row in the segment's file
        which = np.searchsorted(starts, places, side="right") - 1
        documents = np.empty(len(part), DOCUMENT)
        rows = np.empty(len(part), np.int64)
        for number in np.unique(which).tolist():
            mine = np.flatnonzero(which == number)
            table = every[number].table()
            in_segment = places[mine] - starts[number]
            documents[mine] = table[in_segment]
            rows[mine] = rows_of(table)[in_segment]
        # Each split takes its documents, and yields a part whenever it is full
        kept = ~mixture.dropped[places] & (documents["size"] > 0)
        tally.add(part, documents, kept)
        for number in range(len(SPLITS)):
            mine = np.flatnonzero(kept & (documents["held_out"] == number))
            yield from waiting[number].add(which[mine], rows[mine], documents["size"][mine])
    for documents_left in waiting:
        if documents_left.open.size:
            yield documents_left.part(documents_left.open.shape[1])
    tally.ran_out = mixture.ran_out


def rows_of(table: NDArray[Any]) -> NDArray[np.int64]:
    """Row of each document in its segment's file for its split, where empty documents have none."""
    rows = np.empty(len(table), np.int64)
    for number in range(len(SPLITS)):
        mine = table["held_out"] == number
        rows[mine] = np.cumsum(table["size"][mine] > 0) - 1
    return rows


@dataclass
class Waiting:
    """A split's documents that do not fill a part yet."""

    folder: Path
    split: str
    segments: list[Segment]
    number: int = 0  # of the next part
    # segment, row and size of each document: (3, n)
    open: NDArray[np.int64] = field(default_factory=lambda: np.empty((3, 0), np.int64))

    def add(
        self, which: NDArray[Any], rows: NDArray[Any], sizes: NDArray[Any]
    ) -> Iterator[PartFile]:
        """Add documents (n,); yields parts that are full."""
        self.open = np.hstack([self.open, np.array((which, rows, sizes), np.int64)])
        while self.open[2].sum() >= corpus.PART_BYTES:
            last = np.searchsorted(np.cumsum(self.open[2]), corpus.PART_BYTES)
            yield self.part(int(last) + 1)

    def part(self, end: int) -> PartFile:
        """Take the first ``end`` documents as the next part."""
        which, rows, size = self.open[:, :end]
        self.open = self.open[:, end:]
        target = corpus.part_path(self.folder, self.split, self.number)
        self.number += 1
        segments, number = np.unique(which, return_inverse=True)
        files = [self.segments[i].file(f"{self.split}.parquet") for i in segments.tolist()]
        return PartFile(target, files, number, rows, int(size.sum()))
