"""The interface of all sources: they give documents, which are bytes, tell their reading position,
and go on from there. What is wrong with a source's files is a UserError that names file and line or
row, and the key of the configuration if there is one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.artifacts.corpus import Document
from pipelines.common.errors import UserError

MAX_DOCUMENT = 256 << 20  # bytes; a document is held in memory, several times while tokenized


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
