"""Where text comes from: files of several formats, and datasets of a hub. Documents are bytes.

A source can tell its reading position and go on from there. What is wrong with its files is a
UserError that names file and line or row, and the key of the configuration where there is one.
"""

import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.corpus import Document
from pipelines.common import file_listing as listing
from pipelines.common.errors import UserError
from pipelines.common.file_listing import Entry, Fingerprint, Folder, local_files, one_line
from pipelines.config.data import Files, Hub, Part

MAX_DOCUMENT = 256 << 20  # bytes; a document is held in memory, several times while tokenised
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}  # others are plain text
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
ROWS, DECODED = 64, 16 << 20  # of Parquet decoded at once: rows, and bytes of rows of mean length
TEXT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


class Source(ABC):
    """Documents, empty ones included, in an order that does not change."""

    size: int | None = None  # bytes of all documents, if known

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """From the position on; raises UserError."""

    @abstractmethod
    def position(self) -> dict[str, Any]:
        """Behind the last document that was given out; plain data, with what tells whether the text
        before it is still the same.
        """

    @abstractmethod
    def fits(self, position: dict[str, Any]) -> bool:
        """Whether the text before a position told earlier is still the same."""

    @abstractmethod
    def seek(self, position: dict[str, Any]) -> None:
        """Go to a position told earlier, before any document is asked for."""


def open_source(key: str, part: Part) -> Source:
    """The source that ``key`` describes; raises UserError if there is none."""
    return FileSource(key, part) if isinstance(part, Files) else HubSource(key, part)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    with listing.readable(path, pa.ArrowException):
        yield


def encode(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON may hold, becomes three bytes of its own."""
    return text.encode("utf-8", "surrogatepass")


class FileSource(Source):
    """The files under a folder, sorted folder by folder."""

    def __init__(self, key: str, part: Files) -> None:
        """Looks at all files, but into none; raises UserError if none fits."""
        self.key, self.part = key, part
        self.folder = Folder(key, part.root, part.pattern, part.exclude)
        self.file = self.document = 0  # how many are behind the position, the latter of a file
        self.seen = Fingerprint()  # of the files up to the position
        count, size, plain = 0, 0, True
        for entry in self.folder.entries():
            count, size = count + 1, size + entry.size
            plain &= self.kind(entry.path) == "text" and suffix(entry.path) not in COMPRESSIONS
        if not count:
            raise UserError(
                f"{key}.pattern: {part.pattern} matches no file under {self.folder.root}"
                + " that is not excluded" * bool(part.exclude)
            )
        self.size = size if plain else None

    def position(self) -> dict[str, Any]:
        return {"file": self.file, "document": self.document, "seen": self.seen.hex()}

    def fits(self, position: dict[str, Any]) -> bool:
        """Files behind the position may come, go and change."""
        return self.up_to(position).hex() == str(position["seen"])

    def up_to(self, position: dict[str, Any]) -> Fingerprint:
        count = position["file"] + bool(position["document"])
        return Fingerprint(islice(self.folder.entries(), count))

    def seek(self, position: dict[str, Any]) -> None:
        self.file, self.document = position["file"], position["document"]
        self.seen = self.up_to(position)

    def documents(self) -> Iterator[Document]:
        for number, entry in enumerate(self.folder.entries()):
            if number < self.file:
                continue
            if not self.document:
                self.seen.add(entry)
            name = os.fsencode(entry.name).decode(errors="replace")
            for place, text in self.read(entry, self.document):
                self.document += 1
                yield name + place, text
            self.file, self.document = number + 1, 0

    def kind(self, path: Path) -> str:
        """text, jsonl or parquet; raises UserError if it may be either."""
        if self.part.format:
            return self.part.format
        name = Path(path.stem) if suffix(path) in COMPRESSIONS else path
        if suffix(name) == ".json":
            raise UserError(
                f"{path}: .json may be one document or JSON Lines; say {self.key}.format: text, or "
                f"jsonl, or leave it out with {self.key}.exclude"
            )
        return FORMATS.get(suffix(name), "text")

    def read(self, entry: Entry, skip: int) -> Iterator[Document]:
        """The documents of a file but the first ``skip``, each with its place in the file. A file
        without any is an empty document.
        """
        path, kind = entry.path, self.kind(entry.path)
        packed = suffix(path) in COMPRESSIONS
        with readable(path):
            if kind == "parquet":
                if packed:
                    raise OSError("Parquet is compressed inside; unpack it")
                yield from self.read_parquet(path, skip)
                return
            if packed and not entry.size:
                raise OSError("Truncated compressed stream")
            with open(path, "rb") as raw, unpacked(raw, suffix(path)) as file:
                if kind == "jsonl":
                    yield from self.read_lines(path, file, skip)
                elif not skip:
                    if not packed and entry.size > MAX_DOCUMENT:
                        raise self.too_long(path)
                    yield "", self.read_text(path, file)

    def too_long(self, place: str | Path) -> UserError:
        return UserError(
            f"{place}: a document of more than {MAX_DOCUMENT >> 20} MiB; cut it into several, or "
            f"leave its file out with {self.key}.exclude"
        )

    def read_text(self, path: Path, file: BinaryIO) -> bytes:
        text = file.read(MAX_DOCUMENT + 1)
        if len(text) > MAX_DOCUMENT:
            raise self.too_long(path)
        if b"\0" in text:
            raise UserError(
                f"{path}: binary, or UTF-16: it has a NUL byte; leave it out with "
                f"{self.key}.exclude, or convert it"
            )
        return text

    def read_lines(self, path: Path, file: BinaryIO, skip: int) -> Iterator[Document]:
        found = 0
        for number, line in enumerate(iter(lambda: file.readline(MAX_DOCUMENT + 1), b""), 1):
            if len(line) > MAX_DOCUMENT:
                raise self.too_long(f"{path}:{number}")
            if line.isspace():
                continue
            found += 1
            if found > skip:
                yield f":{number}", self.text_of_line(f"{path}:{number}", line)
        if not found and not skip:
            yield "", b""

    def text_of_line(self, place: str, line: bytes) -> bytes:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: not a line of JSON in UTF-8 ({one_line(error)})") from None
        if not isinstance(row, dict):
            raise UserError(f"{place}: a JSON {type(row).__name__}, not an object")
        return text_of(self.key, self.part, place, row)

    def read_parquet(self, path: Path, skip: int) -> Iterator[Document]:
        with pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True) as file:
            check_column(self.key, self.part, path, file.schema_arrow)
            if not file.metadata.num_rows and not skip:
                yield "", b""
            field, row = self.part.text_field, 0
            for group in range(file.num_row_groups):
                if row + (count := file.metadata.row_group(group).num_rows) <= skip:
                    row += count
                    continue
                rows = rows_at_once(file.metadata.row_group(group), field)
                for batch in file.iter_batches(rows, [group], [field], use_threads=False):
                    for value in texts_of_column(batch.column(0)):
                        row += 1
                        if row > skip:
                            place = f"{path}: row {row}"
                            text = text_of(self.key, self.part, place, {field: value.as_py()})
                            if len(text) > MAX_DOCUMENT:
                                raise self.too_long(place)
                            yield f":{row}", text


def suffix(path: Path) -> str:
    return path.suffix.lower()


def rows_at_once(group: pq.RowGroupMetaData, field: str) -> int:
    """How many rows to decode together: the file says how long they are, but only in the mean."""
    columns = map(group.column, range(group.num_columns))
    size = sum(c.total_uncompressed_size for c in columns if c.path_in_schema == field)
    return max(1, min(ROWS, DECODED * group.num_rows // max(1, size)))


def texts_of_column(column: pa.Array) -> pa.Array:
    """As bytes, each value by itself."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def unpacked(raw: BinaryIO, suffix: str) -> BinaryIO:
    """A file, decompressed as its suffix says; truncated ones raise OSError."""
    if suffix not in COMPRESSIONS:
        return raw
    return io.BufferedReader(pa.input_stream(raw, compression=COMPRESSIONS[suffix]), 1 << 20)


def text_of(key: str, part: Part, place: str, row: dict[str, Any]) -> bytes:
    """The document in a row; raises UserError if the field is missing or no text."""
    field = part.text_field
    if field not in row:
        raise UserError(
            f"{place}: no field {field!r} ({key}.text_field); it has {', '.join(row) or 'none'}"
        )
    value = row[field]
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise UserError(f"{place}: field {field!r} ({key}.text_field) is {kind}, not text")
    return encode(value)


def check_column(key: str, part: Part, path: Path, schema: pa.Schema) -> None:
    field = part.text_field
    if field not in schema.names:
        raise UserError(
            f"{path}: no column {field!r} ({key}.text_field); it has {', '.join(schema.names)}"
        )
    if schema.names.count(field) > 1:
        raise UserError(f"{path}: several columns {field!r} ({key}.text_field); rename one")
    kind = schema.field(field).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        raise UserError(f"{path}: column {field!r} ({key}.text_field) is null in every row")
    if not any(check(kind) for check in TEXT):
        raise UserError(f"{path}: column {field!r} ({key}.text_field) is of {kind}, not text")


def commit(dataset: str, revision: str | None) -> str:
    """The commit that a branch or tag of a hub's dataset is at now; raises what the hub's library
    raises.
    """
    from huggingface_hub import HfApi

    found = HfApi().dataset_info(dataset, revision=revision).sha
    if not found:
        raise ValueError("the hub tells no commit")
    return found


class HubSource(Source):
    """A dataset of a hub, streamed: nothing but what is being read lies on this machine."""

    def __init__(self, key: str, part: Hub) -> None:
        """Asks the hub for the dataset; raises UserError if it says no."""
        self.key, self.part, self.row = key, part, 0
        with self.told("cannot be loaded"):
            from datasets import load_dataset  # takes a second to import

            revision = part.revision
            if (local := local_files(part.dataset, part.data_files)) is not None:
                self.version: str | None = Fingerprint(local).hex()
            elif part.dataset in listing.BUILDERS:
                self.version = None
                print(
                    f"{key}.data_files: nothing tells if they change before a stopped stage goes on"
                )
            else:
                self.version = revision = commit(part.dataset, part.revision)
            self.dataset = load_dataset(
                part.dataset,
                part.subset,
                split=part.split,
                revision=revision,
                data_files=part.data_files or None,
                streaming=True,
            )
        if columns := self.dataset.column_names:  # unknown for some until a row is read
            text_of(key, part, part.dataset, {name: "" for name in columns})
            self.dataset = self.dataset.select_columns([part.text_field])

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Whatever the library raises is about a name, a file or the connection."""
        try:
            yield
        except Exception as error:
            raise UserError(
                f"{self.key}: {self.part.dataset} {what} ({one_line(error)}); check dataset, "
                "subset, split, revision and data_files, and the connection, or log in with "
                "HF_TOKEN"
            ) from error

    def position(self) -> dict[str, Any]:
        state = self.dataset.state_dict()
        return {"row": self.row, "dataset": state, "version": self.version}

    def fits(self, position: dict[str, Any]) -> bool:
        return bool(position["version"] == self.version)

    def seek(self, position: dict[str, Any]) -> None:
        self.row = position["row"]
        self.dataset.load_state_dict(position["dataset"])

    def documents(self) -> Iterator[Document]:
        with self.told("cannot be read"):
            rows = iter(self.dataset)
        while True:
            with self.told(f"cannot be read behind row {self.row:,}"):
                row = next(rows, None)
            if row is None:
                break
            self.row += 1
            place = f"{self.part.dataset}: row {self.row:,}"
            text = text_of(self.key, self.part, place, row)
            if len(text) > MAX_DOCUMENT:
                raise UserError(f"{place}: a document of more than {MAX_DOCUMENT >> 20} MiB")
            yield str(self.row), text
        if not self.row:
            raise UserError(f"{self.key}.dataset: {self.part.dataset} has no row")
