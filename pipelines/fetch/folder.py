"""Datasets of benchmarks from a folder of files as public repositories hold them."""

import bz2
import gzip
import json
import zlib
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipelines.common.atomic_files import replace_folder
from pipelines.common.errors import UserError
from pipelines.common.file_listing import readable
from pipelines.fetch.forms import Row
from pipelines.fetch.published import Conversion, Published, check_size, conversion
from pipelines.fetch.readers import Splits
from pipelines.suite.benchmark_data import ORIGIN, NotHere

UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress}


class Folder:
    """Fills folders of data/benchmarks/, as benchmark_data.fetch does from the hub."""

    def __init__(self, root: Path) -> None:
        """Raises UserError if there is no such folder."""
        if not root.is_dir():
            raise UserError(f"from={root}: not a folder")
        self.root = root
        self.content = cache(self.read)

    def read(self, name: str) -> bytes:
        """A file's content, unpacked; raises UserError, or FileNotFoundError."""
        path = self.root / name
        if not path.is_file():
            raise FileNotFoundError(path)
        with readable(path, EOFError, zlib.error):
            return UNPACK.get(path.suffix, bytes)(path.read_bytes())

    def fill(self, dataset: str, name: str | None, kwargs: dict[str, Any], target: Path) -> None:
        """Convert a dataset to ``target``; what is there from the hub stays.

        Raises NotHere if the folder has no file of it, UserError if the file is not what it should
        be.
        """
        if from_the_hub(target):
            return
        known = None if kwargs else conversion(dataset, name)
        if known is None:
            raise NotHere(f"{dataset}: no file is known that it can be made from")
        try:
            contents = [self.content(file.name) for file, _ in known.sources]
        except FileNotFoundError as error:
            raise NotHere(f"{dataset}: {error} is not there") from None
        splits, notes = self.convert(known, contents)
        files = [
            origin(file, each) for (file, _), each in zip(known.sources, contents, strict=True)
        ]
        notes += [
            f"{each['file']} is not the file that {file.repository} published"
            for (file, _), each in zip(known.sources, files, strict=True)
            if "commit" not in each
        ]
        about = {"dataset": dataset, "name": name, "revision": None, "files": files, "notes": notes}
        with replace_folder(target) as partial:
            # by itself it writes no file for a split without documents, and cannot read that
            whole = dict.fromkeys(splits, 1)
            as_datasets(splits).save_to_disk(str(partial), num_shards=whole)
            (partial / ORIGIN).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    def convert(self, known: Conversion, contents: list[bytes]) -> tuple[Splits, list[str]]:
        """Documents by split, and what is to be said of them."""
        splits: Splits = {}
        notes = []
        for (file, read), content in zip(known.sources, contents, strict=True):
            splits |= read(content, str(self.root / file.name))
        for split, size in known.sizes.items():
            rows, where = splits[split], f"{self.root / known.sources[0][0].name}: {split}"
            check_size(len(rows), size, where, known.sample)
            if len(rows) < size:
                notes.append(f"a sample of {len(rows):,} of {size:,} {known.unit}")
        if known.group:
            splits = {split: known.group(rows) for split, rows in splits.items()}
        if known.train is not None:
            ((split, rows),) = splits.items()
            scored = len(rows) - known.train
            if scored <= 0:
                raise UserError(f"{where}: {len(rows):,} documents, too few to take shots from")
            splits = {split: rows[:scored], "train": rows[scored:]}
            if known.train:
                notes.append(
                    f"shots from {known.train} documents of the {split} part, which are not scored"
                )
        return splits, [*notes, *known.notes]


def from_the_hub(folder: Path) -> bool:
    path = folder / ORIGIN
    return path.exists() and bool(json.loads(path.read_text(encoding="utf-8"))["revision"])


def origin(file: Published, content: bytes) -> dict[str, str]:
    """Where a file was published, if its content is the known one."""
    digest = sha256(content).hexdigest()
    about = {"file": file.name, "sha256": digest}
    if digest != file.sha256:
        return about
    known = asdict(file)
    return about | {key: known[key] for key in ("repository", "commit", "path")}


def as_datasets(splits: dict[str, list[Row]]) -> Any:
    """As `datasets.DatasetDict`; a split without documents has the others' fields."""
    from datasets import Dataset, DatasetDict  # takes a second to import

    filled = {split: Dataset.from_list(rows) for split, rows in splits.items() if rows}
    features = next(iter(filled.values())).features
    empty = {
        split: Dataset.from_dict({name: [] for name in features}, features)
        for split in splits.keys() - filled
    }
    return DatasetDict({**filled, **empty})
