"""Reads a source to disk, once: documents and their hashes, a bounded number of bytes at a time.

A group is a stretch of a source that one worker reads in order, a segment a stretch of a group:

<group>-00000.train.parquet       its documents of a split, as in a part of a corpus
<group>-00000.documents.npy       size and split of each, empty ones included (DOCUMENT)
<group>-00000.hashes.npy          (3, documents that are not empty): both halves of the hash, and
                                  the document's number in the segment, in order of the hash
<group>-00000.json                written last: where there is none, the segment is not finished
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import BytesIO
from itertools import count
from json import dumps, loads
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.artifacts.corpus import Document, write_part
from pipelines.config.data import TextData
from pipelines.data.sources import Source
from pipelines.host.files import SPLITS, write_file

TEXT_OF_FILE = 4.0  # bytes of text for one of a file, compressed or not, before any has been read
SEGMENT_BYTES = 128 << 20  # of text, at which a segment ends: what a kill may cost a worker
KINDS = (*(f"{split}.parquet" for split in SPLITS), "documents.npy", "hashes.npy")
DOCUMENT = np.dtype([("size", np.uint32), ("held_out", np.bool_)])


@dataclass
class Segment:
    """A finished segment; ``position`` is where its source continues."""

    stem: str  # path without suffix
    documents: int
    bytes: int
    position: Any
    last: bool  # whether it is its group's last

    def file(self, kind: str) -> Path:
        return Path(f"{self.stem}.{kind}")

    def table(self) -> NDArray[Any]:
        """The documents (n,), of dtype DOCUMENT."""
        return np.load(self.file("documents.npy"))


@dataclass
class Group:
    """A stretch of a source, and what has been read from it."""

    source: Source
    stem: str  # path of its segments
    segments: list[Segment]

    @property
    def ended(self) -> bool:
        return bool(self.segments) and self.segments[-1].last

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass
class Reading:
    """A task: read at least ``limit`` more bytes of text from a group."""

    group: Group
    part: str
    limit: float
    seed: int
    validation_share: float


def load_segment(path: Path) -> Segment | None:
    """Load a segment by its .json, written last; None if it is not whole."""
    try:
        segment = Segment(**loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return segment if all(segment.file(kind).exists() for kind in KINDS) else None


def finished_segments(stem: str) -> Iterator[Segment]:
    """A group's finished segments, up to the first that is not."""
    for number in count():
        if (segment := load_segment(Path(f"{segment_stem(stem, number)}.json"))) is None:
            return
        yield segment


def segment_stem(group: str, number: int) -> str:
    return f"{group}-{number:05d}"


def read_group(task: Reading) -> Iterator[Segment]:
    """Read a group and write its segments as they get full; raises UserError or OSError."""
    source, stem = task.group.source, task.group.stem
    left = task.limit  # bytes
    number = len(task.group.segments)  # of the next segment
    if number:
        source.seek(task.group.segments[-1].position)
    # A document's hash depends on its text and the seed alone, not on its part: a text that several
    # parts have is then found, and is in the same split in all of them
    salt = sha256(f"{task.seed}:".encode())
    draft = Draft(stem, number)
    for identity, text in source.documents():
        digest = salt.copy()
        digest.update(text)
        draft.add(f"{task.part}/{identity}", text, digest.digest(), task.validation_share)
        if draft.bytes >= min(SEGMENT_BYTES, left):
            left -= draft.bytes
            yield draft.write(source.position(), last=False)
            if left <= 0:
                return
            number += 1
            draft = Draft(stem, number)
    yield draft.write(source.position(), last=True)


class Draft:
    """A segment that is still in memory."""

    def __init__(self, group: str, number: int) -> None:
        """``group`` is the stem of its group."""
        self.stem = segment_stem(group, number)
        self.bytes = 0
        self.following = Path(f"{segment_stem(group, number + 1)}.json")
        self.texts: dict[str, list[Document]] = {split: [] for split in SPLITS}
        self.documents: list[tuple[int, bool]] = []
        self.hashes = bytearray()  # of documents that are not empty
        self.hashed: list[int] = []  # their numbers

    def add(self, identity: str, text: bytes, digest: bytes, validation_share: float) -> None:
        # The hash decides the split, whatever other documents there are
        held_out = int.from_bytes(digest[:8]) / 2**64 < validation_share
        if text:
            self.texts[SPLITS[held_out]].append((identity, text))
            self.hashes += digest[:16]
            self.hashed.append(len(self.documents))
            self.bytes += len(text)
        self.documents.append((len(text), held_out))

    def write(self, position: Any, last: bool) -> Segment:
        segment = Segment(self.stem, len(self.documents), self.bytes, position, last)
        # Where this one was damaged, files of an earlier try may be here. The next segment began
        # where the damaged one had ended
        segment.file("json").unlink(missing_ok=True)
        self.following.unlink(missing_ok=True)
        for split, content in self.texts.items():
            write_part(segment.file(f"{split}.parquet"), content)
        hashes = np.frombuffer(self.hashes, ">u8").reshape(-1, 2).T.astype(np.uint64)
        rows = np.vstack([hashes, np.array(self.hashed, np.uint64)])
        save_array(segment.file("hashes.npy"), rows[:, np.argsort(rows[0], kind="stable")])
        save_array(segment.file("documents.npy"), np.array(self.documents, DOCUMENT))
        write_file(segment.file("json"), dumps(asdict(segment)))
        return segment


def save_array(path: Path, array: NDArray[Any]) -> None:
    buffer = BytesIO()
    np.save(buffer, array)
    write_file(path, buffer.getvalue())


class Stream:
    """A part of a mixture, group by group."""

    def __init__(self, name: str, source: Source, data: TextData, folder: Path) -> None:
        """Continues from the segments that an earlier try left in ``folder``."""
        self.name, self.data, self.folder = name, data, folder
        self.known: list[Group] = []  # the groups that have been asked for
        self.unknown = source.groups()

    def groups(self) -> Iterator[Group]:
        """All groups in order. The source's files are listed only as far as anybody asks."""
        yield from self.known
        for source in self.unknown:
            version = sha256(repr((self.name, source.version)).encode()).hexdigest()
            stem = str(self.folder / version[:16])
            self.known.append(Group(source, stem, [*finished_segments(stem)]))
            yield self.known[-1]

    def readings(self, goal: float) -> Iterator[Reading]:
        """Yield what to read, by an estimate, for ``goal`` bytes of text without a gap."""
        # Bytes of text for one of a file, in the groups that have been read to their end
        ended = [group for group in self.known if group.ended]
        files = sum(group.source.size or 0 for group in ended)
        ratio = sum(group.bytes for group in ended) / files if files else TEXT_OF_FILE
        for group in self.groups():
            goal -= group.bytes
            if goal <= 0:
                return
            if not group.ended:
                # The whole goal, which this group alone may hold. What it is thought to hold counts
                # when it is decided whether another worker begins the next group
                yield Reading(group, self.name, goal, self.data.seed, self.data.validation_share)
                size = group.source.size
                goal -= inf if size is None else max(1.0, size * ratio - group.bytes)

    def segments(self) -> list[Segment]:
        """The segments before the first gap."""
        segments = []
        for group in self.known:
            segments += group.segments
            if not group.ended:
                break
        return segments

    def ended(self) -> bool:
        return all(group.ended for group in self.groups())
