"""What of a corpus is done, for a killed stage to go on from: one SQLite file, one transaction for
each part.

It holds the hashes of all documents seen, which may be more than fits into memory, the reading
positions, and the documents of parts that are not full yet.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import ENOSPC
from json import dumps, loads
from os import strerror
from pathlib import Path
from typing import Any

from pipelines.artifacts.corpus import Document
from pipelines.common.errors import UserError

UNUSABLE = (  # as it is damaged, or no ledger: what SQLite says on other errors may pass
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # "no such column"
)
TABLES = """
CREATE TABLE IF NOT EXISTS seen (hash BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS open (split TEXT, id TEXT, text BLOB);
CREATE TABLE IF NOT EXISTS state (json TEXT);
"""


class Ledger:
    """What was added since the last commit is lost when the ledger is closed, or the stage dies."""

    def __init__(self, path: Path) -> None:
        """Open or make the file; raises sqlite3.DatabaseError, and OSError if the disk is full."""
        self.path = path
        with self.disk():
            self.database = sqlite3.connect(path)
            self.database.executescript("PRAGMA cache_size = -65536;" + TABLES)

    def state(self) -> dict[str, Any]:
        """As committed last; empty at first. Raises sqlite3.DatabaseError."""
        row = self.database.execute("SELECT json FROM state").fetchone()
        return loads(row[0]) if row else {}

    def open_documents(self, split: str) -> list[Document]:
        rows = self.database.execute("SELECT id, text FROM open WHERE split = ?", (split,))
        return rows.fetchall()

    def is_new(self, digest: bytes) -> bool:
        """Whether a document's hash was not seen before; from now on it was."""
        with self.disk():
            cursor = self.database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,))
        return cursor.rowcount == 1

    def commit(self, state: dict[str, Any], documents: Mapping[str, list[Document]]) -> None:
        """Keep what was seen, with the state and the open documents of each split."""
        with self.disk():
            self.database.execute("DELETE FROM state")
            self.database.execute("INSERT INTO state VALUES (?)", (dumps(state),))
            self.database.execute("DELETE FROM open")
            for split, content in documents.items():
                rows = ((split, identity, text) for identity, text in content)
                self.database.executemany("INSERT INTO open VALUES (?, ?, ?)", rows)
            self.database.commit()

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def disk(self) -> Iterator[None]:
        """SQLite's full disk as OSError, and one that fails as a UserError."""
        try:
            yield
        except sqlite3.OperationalError as error:
            match primary(error):
                case sqlite3.SQLITE_FULL:
                    raise OSError(ENOSPC, strerror(ENOSPC), str(self.path)) from None
                case sqlite3.SQLITE_IOERR:
                    raise UserError(
                        f"{self.path}: {error} ({error.sqlite_errorname}): a disk that fails, or a "
                        "limit on the size of files (`ulimit -f`); the same command goes on"
                    ) from None
            raise


def primary(error: sqlite3.Error) -> int:
    """SQLite's primary result code, such as SQLITE_IOERR for SQLITE_IOERR_WRITE."""
    return error.sqlite_errorcode & 0xFF
