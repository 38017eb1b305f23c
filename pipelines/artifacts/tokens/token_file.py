"""A file of token ids with checksums, in the format of safetensors.

    ids     (tokens,), uint16 or uint32
    crc32   of each BLOCK_TOKENS ids, the last block being what is left

Its metadata are a Header and the CRC-32 of that. Opening a file reads no ids, so that it costs the
same whatever the file's size; a block is checked when it is first read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipelines.common.atomic_files import write_file
from pipelines.common.errors import UserError

BLOCK_TOKENS = 1 << 16

Ids = NDArray[np.unsignedinteger]


@dataclass
class Header:
    tokens: int
    documents: int
    text_bytes: int
    max_id: int  # 0 if there is no token
    dtype: str
    block: int  # tokens
    sha256: str  # of the ids
    source: str  # SHA-256 of the data and settings that the file was made from


ADAPTER = TypeAdapter(Header)


def token_dtype(vocab_size: int) -> str:
    """The smallest of two dtypes that holds every token id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_tokens(
    path: Path, chunks: Iterable[tuple[Ids, int, int]], dtype: str, source: str = ""
) -> Header:
    """Write a token file of ids with the documents and bytes of text they add; raises OSError."""
    parts, documents, size = [np.empty(0, dtype)], 0, 0
    for ids, more_documents, more_bytes in chunks:
        assert ids.max(initial=0) <= np.iinfo(dtype).max
        parts.append(ids.astype(dtype))
        documents, size = documents + more_documents, size + more_bytes
    ids = np.concatenate(parts)
    header = Header(
        tokens=len(ids),
        documents=documents,
        text_bytes=size,
        max_id=int(ids.max(initial=0)),
        dtype=dtype,
        block=BLOCK_TOKENS,
        sha256=sha256(ids.data).hexdigest(),
        source=source,
    )
    said = ADAPTER.dump_json(header)
    blocks = [crc32(ids[at : at + BLOCK_TOKENS].data) for at in range(0, len(ids), BLOCK_TOKENS)]
    tensors = {"ids": ids, "crc32": np.array(blocks, np.uint32)}
    # one entry: safetensors keeps no order of several
    write_file(path, save(tensors, {"header": f"{crc32(said)} {said.decode()}"}))
    return header


def again(path: Path) -> str:
    """The command that makes a file again. Without -f, DVC misses damage that keeps the file's size
    and time.
    """
    return f"`dvc repro -f -s tokenize@{path.parent.name.removesuffix('.partial')}` makes it again"


def read_header(path: Path) -> Header:
    """A token file's header; raises UserError if it is missing, foreign, damaged or cut short."""
    try:
        with safe_open(path, "np") as file:
            names, said = sorted(file.keys()), (file.metadata() or {})["header"]
        check, _, header = said.partition(" ")
        if names != ["crc32", "ids"] or check != str(crc32(header.encode())):
            raise ValueError("its header is damaged")
        return ADAPTER.validate_json(header)
    except OSError as error:
        reason = str(error).partition(":")[0]
        raise UserError(f"{path}: {reason}; {again(path)}") from None
    except (SafetensorError, KeyError, ValueError) as error:
        words = " ".join(str(error).split())
        raise UserError(f"{path}: not a token file, or damaged ({words}); {again(path)}") from None


class TokenFile:
    """Read-only token ids of a file, each block of them checked when it is first read."""

    def __init__(self, path: Path) -> None:
        """Raises UserError as read_header does."""
        self.path, self.header = path, read_header(path)
        self.dtype = np.dtype(self.header.dtype).newbyteorder("<")

    def __len__(self) -> int:
        return self.header.tokens

    def map(self) -> Ids:
        """All ids (tokens,), unchecked, in memory that the system fills as it is read."""
        if not len(self):
            return np.empty(0, self.dtype)
        start = self.path.stat().st_size - len(self) * self.dtype.itemsize  # ids are last
        return np.asarray(np.memmap(self.path, self.dtype, "r", start))

    @cached_property
    def checksums(self) -> list[int]:
        """CRC-32 of each block."""
        with safe_open(self.path, "np") as file:
            checksums: list[int] = file.get_tensor("crc32").tolist()
        return checksums

    @cached_property
    def checked(self) -> bytearray:
        """1 for each block whose checksum has been verified."""
        return bytearray(len(self.checksums))

    def check(self, ids: Ids, start: int, stop: int) -> None:
        """Raise UserError if a block of ``ids`` with tokens ``start`` … ``stop`` − 1 is damaged."""
        size = self.header.block
        for block in range(start // size, -(-stop // size)):
            if not self.checked[block]:
                if crc32(ids[block * size : (block + 1) * size].data) != self.checksums[block]:
                    raise UserError(
                        f"{self.path}: damaged in block {block} (tokens {block * size:,} to "
                        f"{min(len(self), (block + 1) * size) - 1:,}); {again(self.path)}"
                    )
                self.checked[block] = 1

    def read(self) -> Ids:
        """All ids (tokens,), checked."""
        ids = self.map()
        self.check(ids, 0, len(self))
        return ids
