"""The documents of several sources as one corpus: mixed by weight, without duplicates, each in the
split that its hash says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from pipelines.artifacts.corpus import SPLITS, PartWriter
from pipelines.common.console import Bar
from pipelines.common.errors import UserError
from pipelines.config.data import TextData
from pipelines.data.ledger import Ledger
from pipelines.data.sources.base import Source


@dataclass
class Tally:
    """What became of the documents that were read."""

    documents: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    part_documents: dict[str, int] = field(default_factory=dict)
    part_bytes: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    empty: int = 0
    ran_out: str | None = None  # the part that was due and had no more

    @property
    def total(self) -> int:
        """Bytes kept."""
        return sum(self.bytes.values())

    def add(self, part: str, split: str, size: int) -> None:
        self.documents[split] += 1
        self.bytes[split] += size
        self.part_documents[part] += 1
        self.part_bytes[part] += size

    def lines(self, data: TextData) -> Iterator[str]:
        for split in SPLITS:
            yield f"{split}: {self.documents[split]:,} documents, {self.bytes[split]:,} bytes"
        if len(self.part_bytes) > 1:
            for part, size in self.part_bytes.items():
                share = size / self.total
                count = self.part_documents[part]
                yield f"of {part}: {count:,} documents, {size:,} bytes ({share:.1%})"
        if self.duplicates or self.empty:
            yield f"left out: {self.duplicates:,} duplicates, {self.empty:,} empty documents"
        if (last := self.ran_out) and (len(data.parts) > 1 or data.max_bytes):
            share = data.parts[last].weight / sum(each.weight for each in data.parts.values())
            due = f" of {round(data.max_bytes * share):,}" if data.max_bytes else ""
            ended = ", which ended the mixture" * (len(data.parts) > 1)
            yield f"part {last} ran out at {self.part_bytes[last]:,}{due} bytes{ended}"


class Mixture:
    """Sources, how far each is read, and what is not yet in a part of the corpus."""

    def __init__(
        self,
        name: str,
        data: TextData,
        sources: Mapping[str, Source],
        writers: Mapping[str, PartWriter],
        ledger: Ledger,
        spec: dict[str, str],
    ) -> None:
        """Goes on from where ``ledger`` says, and notes ``spec`` in it (see resume.py)."""
        self.name, self.data, self.sources, self.writers = name, data, sources, writers
        self.ledger, self.spec = ledger, spec
        zeros = dict.fromkeys(sources, 0)
        self.tally = Tally(part_documents={**zeros}, part_bytes={**zeros})
        if state := ledger.state():
            self.tally = Tally(**state["tally"])
            for split, writer in writers.items():
                writer.resume(state["parts"][split], ledger.open_documents(split))
            for part, source in sources.items():
                source.seek(state["positions"][part])
            count = sum(self.tally.documents.values())
            print(f"{name}: goes on behind {count:,} documents", flush=True)

    def commit(self) -> None:
        state: dict[str, Any] = {
            "specification": self.spec,
            "tally": asdict(self.tally),
            "parts": {split: writer.number for split, writer in self.writers.items()},
            "positions": {part: source.position() for part, source in self.sources.items()},
        }
        self.ledger.commit(state, {split: writer.open for split, writer in self.writers.items()})

    def read(self) -> Tally:
        """Write the sources' documents until one ends or ``max_bytes`` is reached."""
        data, tally = self.data, self.tally
        readers = {part: source.documents() for part, source in self.sources.items()}
        salt = sha256(f"{data.seed}:".encode())
        with self.progress() as bar:
            while data.max_bytes is None or tally.total < data.max_bytes:
                due = min(
                    data.parts, key=lambda part: tally.part_bytes[part] / data.parts[part].weight
                )
                document = next(readers[due], None)
                if document is None:
                    tally.ran_out = due
                    break
                identity, text = document
                if not text:
                    tally.empty += 1
                    continue
                digest = salt.copy()
                digest.update(text)
                if data.deduplicate and not self.ledger.is_new(digest.digest()[:16]):
                    tally.duplicates += 1
                    continue
                share = int.from_bytes(digest.digest()[:8]) / 2**64  # whatever others there are
                split = "validation" if share < data.validation_share else "train"
                tally.add(due, split, len(text))
                if self.writers[split].add(f"{due}/{identity}", text):
                    self.commit()
                bar.set_postfix_str(f"{sum(tally.documents.values()):,} documents", refresh=False)
                bar.update(len(text))
        return tally

    def progress(self) -> Bar:
        """A bar that counts bytes of text."""
        sizes = [source.size for source in self.sources.values()]
        return Bar(
            self.data.max_bytes or (sizes[0] if len(sizes) == 1 else None),
            initial=self.tally.total,
            desc=self.name,
            unit="B",
            unit_scale=True,
            delay=1,
            mininterval=0.5,
        )


def check_mixture(key: str, data: TextData, tally: Tally) -> None:
    """Raise UserError if a split has no document."""
    count = sum(tally.documents.values())
    if not count:
        raise UserError(f"{key}.parts: no text, but {tally.empty:,} empty documents")
    for split, word in zip(SPLITS, ("lower", "raise"), strict=True):
        if not tally.documents[split]:
            advice = (
                f"{word} it" if count > 1 else "cut it into several, one for each part at least"
            )
            raise UserError(
                f"{key}.validation_share: {data.validation_share} of {count:,} "
                f"document{'s' * (count > 1)} leaves the {split} part empty; {advice}"
            )
