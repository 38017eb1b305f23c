"""Lists the files that a part of a text names, in a folder or in installed Python packages, and
tells whether they changed; imports little.
"""

import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import translate
from glob import glob
from hashlib import file_digest, sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import accumulate, chain
from math import inf
from pathlib import Path, PurePosixPath

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


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(key: str, path: Path) -> dict[str, str]:
    """Read lines name==version as {name: version}, sorted by name; raises UserError."""
    pins = {}
    with readable(path):
        lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if pin := line.partition("#")[0].strip():
            name, equal, version = (part.strip() for part in pin.partition("=="))
            if not (name and equal and version):
                raise UserError(f"{key}.pins: {path}:{number}: {pin} is not name==version")
            pins[canonical(name)] = version
    return dict(sorted(pins.items()))


class PinnedFiles(Folder):
    """Files of the pinned distributions that are not left out, in the order of a hash of their
    paths, so that any prefix is an even sample of them all.

    A file has the id <distribution>-<version>/<path>. If several distributions have a path, the
    first by name provides its file. A version's files do not change, so modification times are
    ignored: another machine has the same entries.
    """

    def __init__(
        self, key: str, pins: str, leave_out: Iterable[str], pattern: str, exclude: Iterable[str]
    ) -> None:
        """Raises UserError if a distribution is missing or of another version."""
        super().__init__(key, sysconfig.get_paths()["purelib"], pattern, exclude)
        versions = read_pins(key, Path(pins))
        left = {canonical(name) for name in leave_out}
        if unknown := sorted(left - {*versions}):
            raise UserError(f"{key}.leave_out: {unknown[0]} is not pinned in {pins}")
        self.installed = {
            f"{name}-{version}": self.find(pins, name, version)
            for name, version in versions.items()
            if name not in left
        }

    def find(self, pins: str, name: str, version: str) -> Distribution:
        """The installed distribution. A local version such as 2.13.0+cpu has the same source."""
        wanted = f"{self.key}.pins: {pins} has {name} {version}"
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            raise UserError(
                f"{wanted}, which is not installed; `make` installs what the project needs, or "
                f"name it in {self.key}.leave_out"
            ) from None
        if version not in (installed.version, installed.version.partition("+")[0]):
            raise UserError(f"{wanted}, but {installed.version} is installed")
        return installed

    def entries(self) -> Iterator[FileEntry]:
        for title, path, file in sorted(self.files(), key=lambda found: by_hash(found[1])):
            with readable(file):
                yield FileEntry(f"{title}/{path}", file, file.stat().st_size, mtime_ns=0)

    def files(self) -> Iterator[tuple[str, PurePosixPath, Path]]:
        """Name with version, path below site-packages, and the file itself."""
        seen = set()
        for title, installed in self.installed.items():
            if (recorded := installed.files) is None:
                raise UserError(f"{self.key}: {title} is installed without a list of its files")
            for path in recorded:
                if path not in seen and self.lets_through(path):
                    seen.add(path)
                    yield title, path, Path(str(installed.locate_file(path)))

    def lets_through(self, path: PurePosixPath) -> bool:
        """Whether to read a path: not outside site-packages, as scripts that name this Python."""
        if ".." in path.parts or path.is_absolute() or not self.matches(str(path)):
            return False
        above = accumulate(path.parts, "{}/{}".format)
        return not any(map(self.excludes_name, path.parts)) and not any(
            map(self.excludes_path, above)
        )


def by_hash(path: PurePosixPath) -> tuple[bytes, str]:
    return sha256(str(path).encode()).digest(), str(path)
