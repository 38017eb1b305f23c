"""Sources read by several workers, as far as a corpus needs."""

from collections.abc import Iterator
from hashlib import sha256
from math import inf
from pathlib import Path

from pipelines.config.data import TextData
from pipelines.data.segments import Group, Reading, Segment, finished
from pipelines.data.sources.base import Source

TEXT_OF_FILE = 4.0  # bytes of text for one of a file, compressed or not, before any has been read


class Stream:
    """A part of a mixture, group by group."""

    def __init__(self, name: str, source: Source, data: TextData, folder: Path) -> None:
        """Takes up the segments in ``folder`` of an earlier try."""
        self.name, self.data, self.folder = name, data, folder
        self.known: list[Group] = []
        self.unknown = source.groups()

    def groups(self) -> Iterator[Group]:
        yield from self.known
        for source in self.unknown:
            version = sha256(repr((self.name, source.version)).encode()).hexdigest()
            stem = str(self.folder / version[:16])
            self.known.append(Group(source, stem, [*finished(stem)]))
            yield self.known[-1]

    def readings(self, goal: float) -> Iterator[Reading]:
        """What to read, by an estimate, to have ``goal`` bytes of text without a gap."""
        ended = [group for group in self.known if group.ended]
        files = sum(group.source.size or 0 for group in ended)
        ratio = sum(group.bytes for group in ended) / files if files else TEXT_OF_FILE
        for group in self.groups():
            goal -= group.bytes
            if goal <= 0:
                return
            if not group.ended:
                yield Reading(group, self.name, goal, self.data.seed, self.data.validation_share)
                size = group.source.size
                goal -= inf if size is None else max(1.0, size * ratio - group.bytes)

    def segments(self) -> list[Segment]:
        """Those before the first gap."""
        segments = []
        for group in self.known:
            segments += group.segments
            if not group.ended:
                break
        return segments

    def ended(self) -> bool:
        return all(group.ended for group in self.groups())
