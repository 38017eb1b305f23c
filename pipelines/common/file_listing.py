"""Lists the files that a part of a text names, to tell whether they changed; imports little."""

import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import translate
from glob import glob
from hashlib import file_digest, sha256
from itertools import chain
from math import inf
from pathlib import Path

from fsspec.utils import glob_translate

from pipelines.host.errors import UserError

BUILDERS = ("arrow", "csv", "json", "parquet", "text")  # of `datasets`, for files named one by one
MAX_FILES_READ, MAX_BYTES_READ = 10_000, 128 << 20  # of a part that is hashed by content


@dataclass(frozen=True)
class FileEntry:
    """A file: its path below the root, and what changes when it is written again."""

    name: str
    path: Path
    size: int
    mtime_ns: int


class Fingerprint:
    """Running hash of entries: names, sizes and times, no content."""

    def __init__(self, entries: Iterable[FileEntry] = ()) -> None:
        self.digest = sha256()
        self.count = self.size = 0
        for entry in entries:
            self.add(entry)

    def add(self, entry: FileEntry) -> None:
        self.digest.update(repr((entry.name, entry.size, entry.mtime_ns)).encode())
        self.count += 1
        self.size += entry.size

    def add_content(self, entry: FileEntry) -> None:
        with readable(entry.path), open(entry.path, "rb") as file:
            self.digest.update(repr((entry.name, file_digest(file, sha256).hexdigest())).encode())
        self.count += 1
        self.size += entry.size

    def hex(self) -> str:
        return self.digest.hexdigest()


def by_content_if_small(entries: Iterable[FileEntry]) -> Fingerprint:
    """Hash names and contents, which do not change when files are copied. If reading them at every
    `dvc repro` would take long, hash names, sizes and times instead. Raises UserError.
    """
    first: list[FileEntry] = []
    size = 0
    remaining = iter(entries)
    for entry in remaining:
        first.append(entry)
        size += entry.size
        if len(first) > MAX_FILES_READ or size > MAX_BYTES_READ:
            return Fingerprint(chain(first, remaining))
    fingerprint = Fingerprint()
    for entry in first:
        fingerprint.add_content(entry)
    return fingerprint


@contextmanager
def readable(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn OSError, and other ``kinds`` of errors with a file, into a UserError that names it."""
    caught: tuple[type[Exception], ...] = (OSError, *kinds)
    try:
        yield
    except caught as error:
        reason = getattr(error, "strerror", None) or words_of(error)
        raise UserError(f"{path}: cannot be read ({reason}); fix or exclude it") from None


def words_of(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def compile_exclude(pattern: str) -> str:
    """Regular expression for a pattern: a path below the root if it has a slash, else a name."""
    pattern = pattern.rstrip("/")
    return glob_translate(pattern) if "/" in pattern else translate(pattern)


class Folder:
    """The files under a folder that match a pattern, sorted folder by folder."""

    def __init__(self, key: str, root: str, pattern: str, exclude: Iterable[str]) -> None:
        """Raises UserError if there is no such folder."""
        self.key = key
        self.root = Path(sysconfig.get_paths()["stdlib"] if root == "stdlib" else root)
        with readable(self.root):
            if not self.root.is_dir():
                raise UserError(f"{key}.root: {root} is not a folder")
        self.matches = re.compile(glob_translate(pattern)).match
        paths = [p for p in exclude if "/" in p.rstrip("/")]
        names = [p for p in exclude if p not in paths]
        self.excludes_path = re.compile("|".join(map(compile_exclude, paths)) or "(?!)").match
        self.excludes_name = re.compile("|".join(map(compile_exclude, names)) or "(?!)").match
        self.depth = inf if "**" in pattern else pattern.count("/")

    def entries(self) -> Iterator[FileEntry]:
        """Yield all files that pattern and exclude let through, without holding them all."""
        with readable(self.root):
            status = self.root.stat()
        return self.walk(self.root, "", [(status.st_dev, status.st_ino)])

    def walk(self, folder: Path, prefix: str, above: list[tuple[int, int]]) -> Iterator[FileEntry]:
        with readable(folder), os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
        for entry in entries:
            name, path = prefix + entry.name, Path(entry.path)
            if self.excludes_name(entry.name) or self.excludes_path(name):
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
                    yield FileEntry(name, path, status.st_size, status.st_mtime_ns)


def local_files(dataset: str, data_files: Iterable[str]) -> list[FileEntry] | None:
    """The files of a hub source that lie on this machine; None if the source is elsewhere."""
    base = Path(dataset)
    if not base.is_dir():
        if dataset not in BUILDERS:
            return None
        base = Path()
    patterns = list(data_files) or ["**/*"]
    if any("://" in pattern for pattern in patterns):
        return None
    paths = {path for p in patterns for path in glob(str(base / p), recursive=True)}
    entries = []
    for path in map(Path, sorted(paths)):
        with readable(path):
            if path.is_file():
                status = path.stat()
                entries.append(FileEntry(str(path), path, status.st_size, status.st_mtime_ns))
    return entries
