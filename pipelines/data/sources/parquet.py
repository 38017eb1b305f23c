"""Reads the text column of a Parquet file, a bounded number of bytes at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.common.errors import UserError

BATCH_ROWS, BATCH_BYTES = 64, 16 << 20  # decoded at once: rows, and bytes of rows of mean length


def rows(key: str, field: str, path: Path, skip: int) -> Iterator[tuple[int, Any]]:
    """Yield number, from 1, and ``field`` of every row after the first ``skip``. Raises UserError
    unless it is a column of text, and Arrow's errors for a damaged file.
    """
    with pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True) as file:
        check_column(key, field, path, file.schema_arrow)
        row = 0
        for group in range(file.num_row_groups):
            metadata = file.metadata.row_group(group)
            if row + metadata.num_rows <= skip:
                row += metadata.num_rows
                continue
            count = rows_at_once(metadata, field)
            for batch in file.iter_batches(count, [group], [field], use_threads=False):
                for value in as_bytes(batch.column(0)):
                    row += 1
                    if row > skip:
                        yield row, value.as_py()


def rows_at_once(group: pq.RowGroupMetaData, field: str) -> int:
    """How many rows to decode together: the file tells only their mean length."""
    columns = map(group.column, range(group.num_columns))
    size = sum(c.total_uncompressed_size for c in columns if c.path_in_schema == field)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(1, size)))


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
