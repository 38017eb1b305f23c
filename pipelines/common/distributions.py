"""The files of installed Python packages, at the versions that a file pins; imports little."""

import re
import sysconfig
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import accumulate
from pathlib import Path, PurePosixPath

from pipelines.common.file_listing import FileEntry, Folder, readable
from pipelines.host.errors import UserError

Found = tuple[str, PurePosixPath, Path]  # name with version, path below site-packages, file


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

    def files(self) -> Iterator[Found]:
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
