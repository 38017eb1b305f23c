"""Finds documents that repeat an earlier one. Hashes are split into partitions that fit in memory,
so memory does not grow with the corpus.

A document's place is its number among all that were read, part after part of the mixture.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.cluster.workers import run_tasks
from pipelines.data.segments import Segment

PARTITION_DOCUMENTS = 1 << 21  # on average: a quarter of a gigabyte while they are sorted

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
