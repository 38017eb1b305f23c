"""A corpus on disk: its documents, raw bytes, in Parquet parts of each split.

<folder>/train-00000.parquet, train-00001.parquet, …, validation-00000.parquet, …

Columns: id (string: where the document comes from) and text (binary).
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.host.errors import UserError
from pipelines.host.files import write_file

PART_BYTES = 32 << 20  # of text, at which a part ends
GROUP_BYTES = 4 << 20  # of text, at which a row group ends: what a reader holds
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.binary())])

Document = tuple[str, bytes]
T = TypeVar("T")


def parts(folder: Path, split: str) -> list[Path]:
    """The parts of a split in order; raises UserError if there is none or one is missing."""
    found = {*folder.glob(f"{split}-*.parquet")}
    if not found:
        raise UserError(f"{folder}: no {split} part of a corpus here; run `dvc repro data`")
    paths = [part_path(folder, split, number) for number in range(len(found))]
    for path in paths:
        if path not in found:
            raise UserError(f"{path} is missing; run `dvc repro data`")
    return paths


def part_path(folder: Path, split: str, number: int) -> Path:
    return folder / f"{split}-{number:05d}.parquet"


def documents(path: Path, rows: NDArray[np.integer] | None = None) -> Iterator[Document]:
    """The documents of a part, or only those in ``rows``, which ascend. One row group is in memory
    at a time. Raises UserError if the part is damaged.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if file.schema_arrow.remove_metadata() != SCHEMA:
                raise pa.ArrowInvalid(f"columns {', '.join(file.schema_arrow.names)}")
            start = end = 0
            for group in range(file.num_row_groups):
                start, end = end, end + file.metadata.row_group(group).num_rows
                if rows is not None and not len(chosen := rows[(start <= rows) & (rows < end)]):
                    continue
                table = file.read_row_group(group, use_threads=False)
                if rows is not None:
                    table = table.take(chosen - start)
                yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a part of a corpus, or damaged ({reason})") from None


def count_documents(path: Path) -> int:
    """Number of documents in a part that has been read before."""
    return int(pq.read_metadata(path).num_rows)


def write_part(path: Path, content: list[Document]) -> None:
    """Write a part, all of it or nothing; raises OSError."""
    buffer = pa.BufferOutputStream()  # in memory: only write_file meets a full disk
    with pq.ParquetWriter(
        buffer,
        SCHEMA,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for group in batches(content, GROUP_BYTES, text_bytes):
            columns = zip(*group, strict=True)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
    write_file(path, buffer.getvalue())


def write_parts(folder: Path, split: str, content: Iterable[Document]) -> int:
    """Write a split's documents part by part, one part in memory; returns how many they are."""
    count = 0
    for number, part in enumerate(batches(content, PART_BYTES, text_bytes)):
        write_part(part_path(folder, split, number), part)
        count += len(part)
    return count


def text_bytes(document: Document) -> int:
    return len(document[1])


def batches(items: Iterable[T], limit: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Group items, in order, into lists that end once their sizes add up to ``limit``."""
    batch, total = list[T](), 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
