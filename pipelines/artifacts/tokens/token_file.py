"""A file of token ids with checksums: header, ids, and a CRC-32 of each block of ids.

    header   128 bytes, little-endian: see Header; its last field is its own CRC-32
    payload  ``tokens`` ids, uint16 or uint32
    table    a CRC-32 (uint32) of each BLOCK_TOKENS ids, the last block being what is left

Opening a file reads its header alone, so that it costs the same whatever the file's size; a block
is checked when it is first read.
"""

import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cached_property
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pipelines.common.atomic_files import replace_file
from pipelines.common.errors import UserError

MAGIC = b"\x89FTOKENS"  # not ASCII: a file that was treated as text is no longer one of these
VERSION = 1
BLOCK_TOKENS = 1 << 16
LAYOUT = struct.Struct("<8sIIQQQII32s32sI8x")
CHECK = struct.Struct("<I")
HEADER_BYTES = LAYOUT.size + CHECK.size

Ids = NDArray[np.unsignedinteger]


@dataclass
class Header:
    magic: bytes
    version: int
    width: int  # bytes of an id
    tokens: int
    documents: int
    text_bytes: int
    max_id: int  # 0 if there is no token
    block: int  # tokens
    sha256: bytes  # of the payload
    source: bytes  # SHA-256 of the data and settings that the file was made from
    table_crc: int

    def pack(self) -> bytes:
        packed = LAYOUT.pack(*astuple(self))
        return packed + CHECK.pack(crc32(packed))


def token_dtype(vocab_size: int) -> str:
    """The smallest of two dtypes that holds every token id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_tokens(
    path: Path, chunks: Iterable[tuple[Ids, int, int]], dtype: str, source: bytes = bytes(32)
) -> Header:
    """Write a token file of ids with the documents and bytes of text they add; raises OSError."""
    kind = np.dtype(dtype).newbyteorder("<")
    digest, table, left = sha256(), bytearray(), b""
    tokens = documents = size = max_id = 0
    block = BLOCK_TOKENS * kind.itemsize
    with replace_file(path) as file:
        file.write(bytes(HEADER_BYTES))  # overwritten at the end
        for ids, more_documents, more_bytes in chunks:
            documents, size = documents + more_documents, size + more_bytes
            if not len(ids):
                continue
            tokens, max_id = tokens + len(ids), max(max_id, int(ids.max()))
            assert max_id <= np.iinfo(kind).max
            left += ids.astype(kind).tobytes()
            whole = len(left) - len(left) % block
            table += b"".join(
                CHECK.pack(crc32(left[start : start + block])) for start in range(0, whole, block)
            )
            digest.update(left[:whole])
            file.write(left[:whole])
            left = left[whole:]
        if left:
            table += CHECK.pack(crc32(left))
            digest.update(left)
            file.write(left)
        file.write(table)
        header = Header(
            magic=MAGIC,
            version=VERSION,
            width=kind.itemsize,
            tokens=tokens,
            documents=documents,
            text_bytes=size,
            max_id=max_id,
            block=BLOCK_TOKENS,
            sha256=digest.digest(),
            source=source,
            table_crc=crc32(table),
        )
        file.seek(0)
        file.write(header.pack())
    return header


def again(path: Path) -> str:
    """The command that makes a file again. Without -f, DVC misses damage that keeps the file's size
    and time.
    """
    return f"`dvc repro -f -s tokenize@{path.parent.name.removesuffix('.partial')}` makes it again"


def read_header(path: Path) -> Header:
    """A token file's header; raises UserError if missing, foreign, newer, damaged or cut short."""
    try:
        with open(path, "rb") as file:
            raw = file.read(HEADER_BYTES)
            size = file.seek(0, 2)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {again(path)}") from None
    if raw[: len(MAGIC)] != MAGIC:
        raise UserError(f"{path}: not a token file; {again(path)}")
    if len(raw) < HEADER_BYTES:
        raise UserError(f"{path}: cut short, {size} bytes; {again(path)}")
    header = Header(*LAYOUT.unpack_from(raw))
    if header.version != VERSION:
        raise UserError(
            f"{path}: has version {header.version}, but this code reads version {VERSION}; "
            f"{again(path)}"
        )
    if CHECK.unpack_from(raw, LAYOUT.size)[0] != crc32(raw[: LAYOUT.size]):
        raise UserError(f"{path}: its header is damaged; {again(path)}")
    blocks = -(-header.tokens // header.block)
    promised = HEADER_BYTES + header.tokens * header.width + blocks * CHECK.size
    if size != promised:
        raise UserError(f"{path}: {size} bytes, but its header promises {promised}; {again(path)}")
    return header


class TokenFile:
    """Read-only token ids of a file, each block of them checked when it is first read."""

    def __init__(self, path: Path) -> None:
        """Raises UserError as read_header does."""
        self.path, self.header = path, read_header(path)
        self.dtype = np.dtype(f"<u{self.header.width}")

    def __len__(self) -> int:
        return self.header.tokens

    def map(self) -> Ids:
        """All ids (tokens,), unchecked, in memory that the system fills as it is read."""
        with open(self.path, "rb") as file:
            memory = mmap(file.fileno(), 0, access=ACCESS_READ)
        return np.frombuffer(memory, self.dtype, self.header.tokens, HEADER_BYTES)

    @cached_property
    def checksums(self) -> list[int]:
        """CRC-32 of each block."""
        with open(self.path, "rb") as file:
            file.seek(HEADER_BYTES + self.header.tokens * self.header.width)
            table = file.read()
        if crc32(table) != self.header.table_crc:
            raise UserError(f"{self.path}: its table of checksums is damaged; {again(self.path)}")
        return np.frombuffer(table, "<u4").tolist()

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
