"""The files under a folder: plain text, JSON Lines and Parquet, compressed or not."""

import io
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.artifacts.corpus import Document
from pipelines.common.distributions import PinnedFiles
from pipelines.common.errors import UserError
from pipelines.common.file_listing import FileEntry, Fingerprint, Folder, readable, words_of
from pipelines.config.data import Distributions, Files
from pipelines.data.sources import base, parquet
from pipelines.data.sources.base import Source, not_too_long, text_of

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}  # others are plain text
GROUP_BYTES = 64 << 20  # of files that one worker reads, at most, or a single file
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}

Entries = Callable[[], Iterator[FileEntry]]


class FileSource(Source):
    """The files under a folder, sorted folder by folder."""

    def __init__(self, key: str, part: Files, entries: Entries | None = None) -> None:
        """Lists files, opens none; UserError if none fits. ``entries`` overrides ``part``'s."""
        self.key, self.part = key, part
        self.advice = f"; cut it into several, or leave its file out with {key}.exclude"
        root: str | Path = part.root
        if entries is None:
            folder = Folder(key, part.root, part.pattern, part.exclude)
            root, entries = folder.root, folder.entries
        self.entries = entries
        self.file = self.document = 0  # before the position: files, and documents of the next
        self.plain, files = True, Fingerprint()
        for entry in self.entries():
            files.add(entry)
            self.plain &= self.kind(entry.path) == "text" and suffix(entry.path) not in COMPRESSIONS
        if not files.count:
            raise UserError(
                f"{key}.pattern: {part.pattern} matches no file under {root}"
                + " that is not excluded" * bool(part.exclude)
            )
        self.size, self.version = files.size, files.hex()

    def groups(self) -> Iterator[Source]:
        files, size = list[FileEntry](), 0
        for entry in self.entries():
            if files and size + entry.size > GROUP_BYTES:
                yield FileSource(self.key, self.part, partial(iter, files))
                files, size = [], 0
            files.append(entry)
            size += entry.size
        yield FileSource(self.key, self.part, partial(iter, files))

    def position(self) -> dict[str, Any]:
        return {"file": self.file, "document": self.document}

    def seek(self, position: dict[str, Any]) -> None:
        self.file, self.document = position["file"], position["document"]

    def documents(self) -> Iterator[Document]:
        for number, entry in enumerate(self.entries()):
            if number < self.file:
                continue
            name = os.fsencode(entry.name).decode(errors="replace")
            for suffix_of_id, text in self.read(entry, self.document):
                self.document += 1
                yield name + suffix_of_id, text
            self.file, self.document = number + 1, 0

    def kind(self, path: Path) -> str:
        """text, jsonl or parquet; raises UserError if it may be either."""
        if self.part.format:
            return self.part.format
        name = Path(path.stem) if suffix(path) in COMPRESSIONS else path
        if suffix(name) == ".json":
            raise UserError(
                f"{path}: .json may be one document or JSON Lines; set {self.key}.format to text "
                f"or jsonl, or leave the file out with {self.key}.exclude"
            )
        return SUFFIXES.get(suffix(name), "text")

    def read(self, entry: FileEntry, skip: int) -> Iterator[Document]:
        """Yield a file's documents after the first ``skip``, each with its line or row, the end of
        its id.
        """
        path, kind = entry.path, self.kind(entry.path)
        compressed = suffix(path) in COMPRESSIONS
        with readable(path, pa.ArrowException):
            if kind == "parquet":
                if compressed:
                    raise OSError("Parquet is compressed inside; unpack it")
                yield from self.read_parquet(path, skip)
                return
            if compressed and not entry.size:
                raise OSError("Truncated compressed stream")
            with open(path, "rb") as raw, decompressed(raw, suffix(path)) as file:
                if kind == "jsonl":
                    yield from self.read_lines(path, file, skip)
                elif not skip:
                    yield "", self.read_text(path, file)

    def read_text(self, path: Path, file: BinaryIO) -> bytes:
        text = not_too_long(path, file.read(base.MAX_DOCUMENT + 1), self.advice)
        if b"\0" in text:
            raise UserError(
                f"{path}: binary, or UTF-16: it has a NUL byte; leave it out with "
                f"{self.key}.exclude, or convert it"
            )
        return text

    def read_lines(self, path: Path, file: BinaryIO, skip: int) -> Iterator[Document]:
        lines = enumerate(iter(lambda: file.readline(base.MAX_DOCUMENT + 1), b""), 1)
        filled = ((number, line) for number, line in lines if not line.isspace())
        for number, line in islice(filled, skip, None):
            location = f"{path}:{number}"
            not_too_long(location, line, self.advice)
            yield f":{number}", self.text_of_line(location, line)

    def text_of_line(self, location: str, line: bytes) -> bytes:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{location}: not a line of JSON in UTF-8 ({words_of(error)})"
            ) from None
        if not isinstance(row, dict):
            raise UserError(f"{location}: a JSON {type(row).__name__}, not an object")
        return text_of(self.key, self.part.text_field, location, row)

    def read_parquet(self, path: Path, skip: int) -> Iterator[Document]:
        field = self.part.text_field
        for row, value in parquet.rows(self.key, field, path, skip):
            location = f"{path}: row {row}"
            text = text_of(self.key, field, location, {field: value})
            yield f":{row}", not_too_long(location, text, self.advice)


def distribution_source(key: str, part: Distributions) -> FileSource:
    """The files of installed Python packages; raises UserError."""
    folder = PinnedFiles(key, part.pins, part.leave_out, part.pattern, part.exclude)
    files = Files(root=str(folder.root), pattern=part.pattern, exclude=part.exclude, format="text")
    return FileSource(key, files, folder.entries)


def suffix(path: Path) -> str:
    return path.suffix.lower()


def decompressed(raw: BinaryIO, suffix: str) -> BinaryIO:
    """A file, decompressed as its suffix says; truncated ones raise OSError."""
    if suffix not in COMPRESSIONS:
        return raw
    return io.BufferedReader(pa.input_stream(raw, compression=COMPRESSIONS[suffix]), 1 << 20)
