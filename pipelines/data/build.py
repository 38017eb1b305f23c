"""Stage `data`: make a corpus (see corpus.py).    python -m pipelines.data <name>

Text is read source by source (sources.py), freed of duplicates, split by the hash of each
document, and written part by part to data/corpus/<name>.partial, where a killed stage goes on: DVC
deletes data/corpus/<name> before the stage runs.
"""

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import islice
from json import dumps, loads
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from tqdm import tqdm

from ftmodel.synthetic.registry import PROCESSES
from pipelines.artifacts.corpus import SPLITS, PartWriter, part_path
from pipelines.artifacts.paths import corpus_folder
from pipelines.common import errors
from pipelines.common.atomic_files import alone, replace_folder
from pipelines.common.console import argument
from pipelines.common.errors import UserError
from pipelines.common.source_code import code_version
from pipelines.config.data import ProcessData, TextData
from pipelines.config.load import load_stage
from pipelines.data.ledger import UNUSABLE, Ledger, primary
from pipelines.data.sources import Source, open_source

DRAWN = 4096  # sequences of a process at once
REPEATED = 0.01  # share of held-out ones among those drawn, above which they may be in training


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


def process_texts(data: ProcessData) -> dict[str, Iterator[str]]:
    """Sequences of a process by split; no held-out one occurs in training, unless more than 1 % of
    what is drawn does.

    To leave those out that are held out makes the training sequences rarer ones than the process
    says. That is negligible where sequences hardly ever repeat. Where they do, nothing can be
    learnt by heart that is not true of the process, and both splits are left as they are drawn.
    """
    process = PROCESSES[data.source]
    generator = torch.Generator().manual_seed(data.seed)
    rows = process.sample(data.validation_sequences, generator)
    held_out = [process.text(row) for row in rows]

    def draw() -> list[str]:
        return [process.text(row) for row in process.sample(DRAWN, generator)]

    def training() -> Iterator[str]:
        known, drawn = set(held_out), draw()
        if sum(text in known for text in drawn) > REPEATED * DRAWN:
            known = set()
        while True:
            yield from (text for text in drawn if text not in known)
            drawn = draw()

    return {"train": islice(training(), data.train_sequences), "validation": iter(held_out)}


def make_process(name: str, data: ProcessData, target: Path) -> None:
    with replace_folder(target) as folder:
        for split, texts in process_texts(data).items():
            writer = PartWriter(folder, split)
            for count, text in enumerate(texts, 1):
                writer.add(str(count - 1), text.encode())
            writer.close()
            print(f"{name} {split}: {count:,} sequences")


def split_of(digest: bytes, validation_share: float) -> str:
    """The split of a document by its hash, whatever other documents there are."""
    return "validation" if int.from_bytes(digest[:8]) / 2**64 < validation_share else "train"


def specification(data: TextData) -> str:
    """Hash of all that decides a corpus but the files: work done under another one is dropped.

    Not so ``pattern`` and ``exclude``: what they let through is for the sources to compare, up to
    where they were read.
    """
    entry = {**asdict(data), "vocab_size": None, "tokenizer": None, "end_of_text": None}
    for part in entry["parts"].values():
        for name in ("pattern", "exclude"):
            part.pop(name, None)
    return sha256(dumps([entry, code_version("data"), pa.__version__]).encode()).hexdigest()


def open_ledger(work: Path, spec: str) -> Ledger:
    """The ledger of work to go on with, or a new one if there is none, or none that fits.

    Raises UserError if the ledger cannot be read now, as another program has locked it, perhaps.
    """
    path = work / "ledger.sqlite"
    try:
        ledger = Ledger(path)
        state = ledger.state()
        whole = all(
            part_path(work / "parts", split, number).exists()
            for split in SPLITS
            for number in range(state["parts"][split])
        )
        if state["specification"] == spec and whole:
            return ledger
        ledger.close()
    except sqlite3.DatabaseError as error:
        if primary(error) not in UNUSABLE:
            raise UserError(f"{path}: {error} ({error.sqlite_errorname}); work is kept") from None
        print(f"{path}: {error}; the corpus is made from its beginning", flush=True)
    except KeyError:  # a new one
        pass
    shutil.rmtree(work, ignore_errors=True)
    (work / "parts").mkdir(parents=True)
    return Ledger(path)


def ledger_that_fits(name: str, work: Path, spec: str, sources: dict[str, Source]) -> Ledger:
    """The ledger of work that its sources still fit, or a new one; says so if work is dropped."""
    begun = any((work / "parts").glob("*"))
    ledger = open_ledger(work, spec)
    state = ledger.state()
    if not state:
        if begun:
            reason = "its settings, the code that reads or pyarrow are others now, or it is damaged"
            print(f"{name}: earlier work is dropped: {reason}", flush=True)
        return ledger
    for part, source in sources.items():
        if not source.fits(state["positions"][part]):
            reason = f"what was read of {part} has changed"
            print(f"{name}: earlier work is dropped: {reason}", flush=True)
            ledger.close()
            shutil.rmtree(work)
            work.mkdir()
            return open_ledger(work, spec)
    return ledger


def open_sources(key: str, data: TextData) -> dict[str, Source]:
    return {part: open_source(f"{key}.parts.{part}", spec) for part, spec in data.parts.items()}


def make_parts(name: str, data: TextData, work: Path) -> Tally:
    """Write the corpus to ``work``/parts, from where an earlier try has come to."""
    key = f"data.{name}"
    sources = open_sources(key, data)
    spec = specification(data)
    work.mkdir(parents=True, exist_ok=True)
    with closing(ledger_that_fits(name, work, spec, sources)) as ledger:
        tally, writers = read(name, data, sources, work / "parts", spec, ledger)
    check(key, data, tally)
    for writer in writers.values():
        writer.close()
    positions = {part: source.position() for part, source in sources.items()}
    state = {"specification": spec, "positions": positions}
    (work / "done.json").write_text(dumps(state))
    return tally


def read(
    name: str, data: TextData, sources: dict[str, Source], folder: Path, spec: str, ledger: Ledger
) -> tuple[Tally, dict[str, PartWriter]]:
    """Read the sources to their end; what is not yet in a part is in the writers."""
    writers = {split: PartWriter(folder, split) for split in SPLITS}
    nothing = dict.fromkeys(sources, 0)
    tally = Tally(part_documents={**nothing}, part_bytes={**nothing})
    if state := ledger.state():
        tally = Tally(**state["tally"])
        for split, writer in writers.items():
            writer.resume(state["parts"][split], ledger.open_documents(split))
        for part, source in sources.items():
            source.seek(state["positions"][part])
        print(f"{name}: goes on behind {sum(tally.documents.values()):,} documents", flush=True)

    def commit() -> None:
        state: dict[str, Any] = {
            "specification": spec,
            "tally": asdict(tally),
            "parts": {split: writer.number for split, writer in writers.items()},
            "positions": {part: source.position() for part, source in sources.items()},
        }
        ledger.commit(state, {split: writer.open for split, writer in writers.items()})

    readers = {part: source.documents() for part, source in sources.items()}
    salt = sha256(f"{data.seed}:".encode())
    with progress(name, data, sources, tally) as bar:
        while data.max_bytes is None or tally.total < data.max_bytes:
            due = min(data.parts, key=lambda part: tally.part_bytes[part] / data.parts[part].weight)
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
            if data.deduplicate and not ledger.is_new(digest.digest()[:16]):
                tally.duplicates += 1
                continue
            split = split_of(digest.digest(), data.validation_share)
            tally.add(due, split, len(text))
            if writers[split].add(f"{due}/{identity}", text):
                commit()
            bar.set_postfix_str(f"{sum(tally.documents.values()):,} documents", refresh=False)
            bar.update(len(text))
    return tally, writers


def check(key: str, data: TextData, tally: Tally) -> None:
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


def progress(name: str, data: TextData, sources: dict[str, Source], tally: Tally) -> Any:
    """A bar that counts bytes of text; in a log a line every half minute."""
    sizes = [source.size for source in sources.values()]
    total = data.max_bytes or (sizes[0] if len(sizes) == 1 else None)
    return tqdm(
        total=total,
        initial=tally.total,
        desc=name,
        unit="B",
        unit_scale=True,
        delay=1,
        mininterval=0.5 if sys.stderr.isatty() else 30,
    )


def make_text(name: str, data: TextData, target: Path) -> None:
    work, done = target.with_name(target.name + ".partial"), target.with_name(target.name + ".done")
    with alone(target) as waited:
        try:
            if waited and target.exists() and is_done(name, data, done):
                print(f"{name}: the other process has made it")
                return
            tally = make_parts(name, data, work)
        except OSError as error:
            if error.errno not in errors.UNWRITABLE:
                raise
            raise UserError(
                f"{work}: {error.strerror}; finished parts are kept, the same command goes on"
            ) from None
        shutil.rmtree(target, ignore_errors=True)
        (work / "parts").rename(target)
        (work / "done.json").replace(done)
        shutil.rmtree(work)
    for line in tally.lines(data):
        print(f"{name} {line}")


def is_done(name: str, data: TextData, done: Path) -> bool:
    """Whether the finished corpus is the one that would be made now."""
    try:
        state = loads(done.read_bytes())
        sources = open_sources(f"data.{name}", data)
        return state["specification"] == specification(data) and all(
            source.fits(state["positions"][part]) for part, source in sources.items()
        )
    except (FileNotFoundError, ValueError, KeyError):
        return False


def main() -> None:
    name = argument("dataset")
    data = load_stage("data", name).data[name]
    target = corpus_folder(name)
    if isinstance(data, ProcessData):
        make_process(name, data, target)
    else:
        make_text(name, data, target)
