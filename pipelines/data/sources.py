"""Where text comes from: each kind of source has a dataclass in config/data.py and a reader here.

All sources give documents, which are bytes, tell their reading position, and go on from there. What
is wrong with a source's files is a UserError that names file and line or row, and the key of the
configuration if there is one.
"""

import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.corpus import Document
from pipelines.common.file_listing import (
    BUILDERS,
    FileEntry,
    Fingerprint,
    Folder,
    PinnedFiles,
    local_files,
    readable,
    words_of,
)
from pipelines.config.data import Distributions, Files, Hub, Part
from pipelines.host.errors import UserError
from pipelines.host.files import check_content

MAX_DOCUMENT = 256 << 20  # bytes; a document is held in memory, several times while tokenized
BATCH_ROWS, BATCH_BYTES = 64, 16 << 20  # decoded at once: rows, and bytes of rows of mean length
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}  # others are plain text
TABLES = (".csv", ".tsv")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
GROUP_BYTES = 64 << 20  # of files that one worker reads, at most, or a single file

Entries = Callable[[], Iterator[FileEntry]]


class Source(ABC):
    """Documents, empty ones included, in an order that does not change."""

    size: int | None = None  # bytes of its files, if known
    plain = False  # whether these are the bytes of its documents
    version: str | None = None  # changes with its text, if known

    def groups(self) -> Iterator["Source"]:
        """Stretches of the source, in order, that workers read side by side."""
        yield self

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield documents from the position on; raises UserError."""

    @abstractmethod
    def position(self) -> dict[str, Any]:
        """The position after the last yielded document, as plain data."""

    @abstractmethod
    def seek(self, position: dict[str, Any]) -> None:
        """Go to an earlier position, before any document is asked for."""


def text_of(key: str, field: str, location: str, row: dict[str, Any]) -> bytes:
    """The document in a row; raises UserError if the field is missing or is not text."""
    if field not in row:
        raise UserError(
            f"{location}: no field {field!r} ({key}.text_field); it has {', '.join(row) or 'none'}"
        )
    value = row[field]
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise UserError(f"{location}: field {field!r} ({key}.text_field) is {kind}, not text")
    return value.encode("utf-8", "surrogatepass")  # JSON may hold half a surrogate pair


def not_too_long(location: str | Path, document: bytes, advice: str = "") -> bytes:
    """Return the document; raises UserError, ending in ``advice``, if it is above MAX_DOCUMENT."""
    if len(document) > MAX_DOCUMENT:
        limit = MAX_DOCUMENT >> 20
        raise UserError(f"{location}: a document of more than {limit} MiB{advice}")
    return document


def parquet_rows(key: str, field: str, path: Path, skip: int) -> Iterator[tuple[int, Any]]:
    """Yield number, from 1, and ``field`` of every row of a Parquet file after the first ``skip``.
    Decodes a bounded number of bytes at once. Raises UserError unless it is a column of text, and
    Arrow's errors for a damaged file.
    """
    with pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True) as file:
        check_column(key, field, path, file.schema_arrow)
        row = 0
        for group in range(file.num_row_groups):
            metadata = file.metadata.row_group(group)
            if row + metadata.num_rows <= skip:
                row += metadata.num_rows
                continue
            # The file tells only the mean length of a row
            columns = map(metadata.column, range(metadata.num_columns))
            size = sum(c.total_uncompressed_size for c in columns if c.path_in_schema == field)
            count = max(1, min(BATCH_ROWS, BATCH_BYTES * metadata.num_rows // max(1, size)))
            for batch in file.iter_batches(count, [group], [field], use_threads=False):
                for value in as_bytes(batch.column(0)):
                    row += 1
                    if row > skip:
                        yield row, value.as_py()


def as_bytes(column: pa.Array) -> pa.Array:
    """A column of text of any type, as bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def check_column(key: str, field: str, path: Path, schema: pa.Schema) -> None:
    if field not in schema.names:
        raise UserError(
            f"{path}: no column {field!r} ({key}.text_field); it has {', '.join(schema.names)}"
        )
    if schema.names.count(field) > 1:
        raise UserError(f"{path}: several columns {field!r} ({key}.text_field); rename one")
    kind = schema.field(field).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        pa.array([], kind).cast(pa.large_binary())
    except pa.ArrowNotImplementedError:
        words = f"is of {kind}, not text"
        raise UserError(f"{path}: column {field!r} ({key}.text_field) {words}") from None


class FileSource(Source):
    """The files under a folder, sorted folder by folder: plain text, JSON Lines and Parquet,
    compressed or not.
    """

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
        self.plain = True
        files = Fingerprint()
        for entry in self.entries():
            files.add(entry)
            self.plain &= self.kind(entry.path) == "text" and suffix(entry.path) not in COMPRESSIONS
        if not files.count:
            raise UserError(
                f"{key}.pattern: {part.pattern} matches no file under {root}"
                + (" that is not excluded" if part.exclude else "")
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
        """text, jsonl or parquet; raises UserError for a name that does not say which."""
        if self.part.format:
            return self.part.format
        name = Path(path.stem) if suffix(path) in COMPRESSIONS else path
        if suffix(name) == ".json":
            raise UserError(
                f"{path}: .json may be one document or JSON Lines; set {self.key}.format to text "
                f"or jsonl, or leave the file out with {self.key}.exclude"
            )
        if suffix(name) in TABLES:
            raise UserError(
                f"{path}: a table, not one text; read its column {self.part.text_field!r} with "
                f"source: hub and dataset: csv, or convert it to Parquet or JSON Lines; set "
                f"{self.key}.format to text to read it as it stands, or leave it out with "
                f"{self.key}.exclude"
            )
        return SUFFIXES.get(suffix(name), "text")

    def read(self, entry: FileEntry, skip: int) -> Iterator[Document]:
        """Yield a file's documents after the first ``skip``, each with its line or row, the end of
        its id.
        """
        path, kind = entry.path, self.kind(entry.path)
        compressed = suffix(path) in COMPRESSIONS
        with readable(path, pa.ArrowException):
            check_content(path)
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
        text = not_too_long(path, file.read(MAX_DOCUMENT + 1), self.advice)
        if b"\0" in text:
            raise UserError(
                f"{path}: binary, or UTF-16: it has a NUL byte; leave it out with "
                f"{self.key}.exclude, or convert it"
            )
        return text

    def read_lines(self, path: Path, file: BinaryIO, skip: int) -> Iterator[Document]:
        lines = enumerate(iter(lambda: file.readline(MAX_DOCUMENT + 1), b""), 1)
        filled = ((number, line) for number, line in lines if not line.isspace())
        for number, line in islice(filled, skip, None):
            location = f"{path}:{number}"
            not_too_long(location, line, self.advice)
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{location}: not a line of JSON in UTF-8 ({words_of(error)})"
                ) from None
            if not isinstance(row, dict):
                raise UserError(f"{location}: a JSON {type(row).__name__}, not an object")
            yield f":{number}", text_of(self.key, self.part.text_field, location, row)

    def read_parquet(self, path: Path, skip: int) -> Iterator[Document]:
        field = self.part.text_field
        for row, value in parquet_rows(self.key, field, path, skip):
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
    stream = pa.input_stream(raw, compression=COMPRESSIONS[suffix])
    file = io.BufferedReader(stream, 1 << 20)
    try:
        file.peek()
    except OSError as error:
        if "too much memory" in str(error):
            raise OSError(
                f"its window is above 128 MiB; unpack it: zstd -d --long=31 {raw.name}"
            ) from None
        raise
    return file


class HubSource(Source):
    """A dataset of a hub, read as a stream by `datasets`: only what is being read lies on this
    machine.
    """

    def __init__(self, key: str, part: Hub) -> None:
        """Asks the hub for the dataset; raises UserError if it says no."""
        self.key, self.part, self.row = key, part, 0
        with self.errors_named("cannot be loaded"):
            from datasets import load_dataset  # takes a second to import
            from huggingface_hub import HfApi

            revision = part.revision
            if (local := local_files(part.dataset, part.data_files)) is not None:
                for entry in local:
                    check_content(entry.path)
                self.version = Fingerprint(local).hex()
            elif part.dataset not in BUILDERS:
                self.version = revision = HfApi().dataset_info(part.dataset, revision=revision).sha
            self.dataset = load_dataset(
                part.dataset,
                part.subset,
                split=part.split,
                revision=revision,
                data_files=part.data_files or None,
                streaming=True,
            )
        if columns := self.dataset.column_names:  # unknown for some until a row is read
            text_of(key, part.text_field, part.dataset, {name: "" for name in columns})
            self.dataset = self.dataset.select_columns([part.text_field])

    @contextmanager
    def errors_named(self, what: str) -> Iterator[None]:
        """Turn what the library raises about a name, a file or the connection into a UserError."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"{self.key}: {self.part.dataset} {what} ({words_of(error)}); check dataset, "
                "subset, split, revision and data_files, and the connection, or log in with "
                "HF_TOKEN"
            ) from error

    def position(self) -> dict[str, Any]:
        state = self.dataset.state_dict()
        return {"row": self.row, "dataset": state}

    def seek(self, position: dict[str, Any]) -> None:
        self.row = position["row"]
        self.dataset.load_state_dict(position["dataset"])

    def documents(self) -> Iterator[Document]:
        rows = iter(self.dataset)
        while True:
            with self.errors_named(f"cannot be read behind row {self.row:,}"):
                row = next(rows, None)
            if row is None:
                break
            self.row += 1
            location = f"{self.part.dataset}: row {self.row:,}"
            text = text_of(self.key, self.part.text_field, location, row)
            yield str(self.row), not_too_long(location, text)


READERS: dict[type[Part], Callable[[str, Any], Source]] = {
    Files: FileSource,
    Hub: HubSource,
    Distributions: distribution_source,
}


def open_source(key: str, part: Part) -> Source:
    """The source that ``key`` describes; raises UserError if there is none."""
    return READERS[type(part)](key, part)
