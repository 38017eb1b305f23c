"""Where text comes from: files of several formats, and datasets of a hub. Documents are bytes.

A source can tell its reading position and go on from there. What is wrong with its files is a
UserError that names file and line or row, and the key of the configuration where there is one.
"""

import io
import json
import os
import re
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import translate
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.utils import glob_translate

from pipelines.corpus import Document
from pipelines.data_schema import Files, Hub, Part
from pipelines.errors import UserError

MAX_DOCUMENT = 256 << 20  # bytes; a document is held in memory, several times while tokenised
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
ROWS = 64  # of Parquet decoded at once


class Source(ABC):
    """Documents, empty ones included, in an order that does not change."""

    size: int | None = None  # bytes of all documents, if known
    fingerprint: Any = None  # tells, with the configuration, whether it still is the same text

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """From the position on; raises UserError."""

    @abstractmethod
    def position(self) -> dict[str, Any]:
        """Behind the last document that was given out; plain data."""

    @abstractmethod
    def seek(self, position: dict[str, Any]) -> None:
        """Go to a position told earlier, before any document is asked for."""


def open_source(key: str, part: Part) -> Source:
    """The source that ``key`` describes; raises UserError if there is none."""
    return FileSource(key, part) if isinstance(part, Files) else HubSource(key, part)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise UserError(f"{path}: cannot be read ({reason}); mend it or exclude it") from None


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def encode(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON may hold, becomes three bytes of its own."""
    return text.encode("utf-8", "surrogatepass")


class FileSource(Source):
    """The files under a folder, sorted folder by folder."""

    def __init__(self, key: str, part: Files) -> None:
        """Looks at all files, but into none; raises UserError if none fits."""
        self.key, self.part = key, part
        stdlib = part.root == "stdlib"
        self.root = Path(sysconfig.get_paths()["stdlib"] if stdlib else part.root)
        if not self.root.is_dir():
            raise UserError(f"{key}.root: {part.root} is not a folder")
        self.matches = re.compile(glob_translate(part.pattern)).match
        self.excludes = re.compile("|".join(map(translate, part.exclude)) or "(?!)").match
        self.depth = inf if "**" in part.pattern else part.pattern.count("/")
        self.file = self.document = 0  # how many are behind the position, the latter of a file
        digest, count, size, plain = sha256(), 0, 0, True
        for path, status in self.files():
            digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
            count, size = count + 1, size + status.st_size
            plain &= path.suffix.lower() not in (*COMPRESSIONS, ".parquet")
        if not count:
            raise UserError(
                f"{key}.pattern: {part.pattern} matches no file under {self.root}"
                + " that is not excluded" * bool(part.exclude)
            )
        self.fingerprint, self.size = digest.hexdigest(), size if plain else None

    def position(self) -> dict[str, Any]:
        return {"file": self.file, "document": self.document}

    def seek(self, position: dict[str, Any]) -> None:
        self.file, self.document = position["file"], position["document"]

    def documents(self) -> Iterator[Document]:
        for number, (path, status) in enumerate(self.files()):
            if number < self.file:
                continue
            name = os.fsencode(path.relative_to(self.root).as_posix()).decode(errors="replace")
            for place, text in self.read(path, status.st_size, self.document):
                self.document += 1
                yield name + place, text
            self.file, self.document = number + 1, 0

    def files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """All files that pattern and exclude let through, never held all at once."""
        status = self.root.stat()
        return self.walk(self.root, "", [(status.st_dev, status.st_ino)])

    def walk(
        self, folder: Path, prefix: str, above: list[tuple[int, int]]
    ) -> Iterator[tuple[Path, os.stat_result]]:
        with readable(folder):
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            name, path = prefix + entry.name, Path(entry.path)
            if self.excludes(entry.name):
                continue
            with readable(path):
                if entry.is_dir():
                    status = entry.stat()
                    identity = status.st_dev, status.st_ino
                    if len(above) <= self.depth and identity not in above:  # a link may lead back
                        yield from self.walk(path, f"{name}/", [*above, identity])
                elif self.matches(name):
                    status = entry.stat()
                    if not entry.is_file():
                        raise OSError("neither a file nor a folder")
                    yield path, status

    def read(self, path: Path, size: int, skip: int) -> Iterator[Document]:
        """The documents of a file but the first ``skip``, each with its place in the file."""
        packed = path.suffix.lower() in COMPRESSIONS
        kind = Path(path.stem).suffix.lower() if packed else path.suffix.lower()
        with readable(path):
            if kind == ".parquet":
                if packed:
                    raise OSError("Parquet is compressed inside; unpack it")
                yield from self.read_parquet(path, skip)
                return
            if packed and not size:
                raise OSError("Truncated compressed stream")
            with open(path, "rb") as raw, unpacked(raw, path.suffix.lower()) as file:
                if kind in (".jsonl", ".ndjson"):
                    yield from self.read_lines(path, file, skip)
                elif not skip:
                    if not packed and size > MAX_DOCUMENT:
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
        if not found:
            raise UserError(f"{path}: empty, without any JSON line; leave it out")

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
            if not file.metadata.num_rows:
                raise UserError(f"{path}: empty, without any row; leave it out")
            row, groups = 0, list(range(file.num_row_groups))
            while groups and row + (n := file.metadata.row_group(groups[0]).num_rows) <= skip:
                row, groups = row + n, groups[1:]
            columns = [self.part.text_field]
            for batch in file.iter_batches(ROWS, groups, columns, use_threads=False):
                for value in batch.column(0).cast(pa.large_binary()):
                    row += 1
                    if row > skip:
                        place = f"{path}: row {row}"
                        text = text_of(self.key, self.part, place, {columns[0]: value.as_py()})
                        if len(text) > MAX_DOCUMENT:
                            raise self.too_long(place)
                        yield f":{row}", text


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
    kind = schema.field(field).type
    checks: list[Callable[[pa.DataType], bool]] = [
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    ]
    if not any(check(kind) for check in checks):
        raise UserError(f"{path}: column {field!r} ({key}.text_field) is of {kind}, not text")


class HubSource(Source):
    """A dataset of a hub, streamed: nothing but what is being read lies on this machine."""

    def __init__(self, key: str, part: Hub) -> None:
        """Asks the hub for the dataset; raises UserError if it says no."""
        self.key, self.part, self.row = key, part, 0
        with self.told("cannot be loaded"):
            from datasets import load_dataset  # takes a second to import

            self.dataset = load_dataset(
                part.dataset,
                part.subset,
                split=part.split,
                revision=part.revision,
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
        return {"row": self.row, "dataset": self.dataset.state_dict()}

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
