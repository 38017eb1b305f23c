"""A file of token ids with checksums, in the format of safetensors.

    ids     (tokens,), uint16 or uint32
    crc32   of each BLOCK_TOKENS ids; the last block is what is left

Its metadata hold a Shard. Opening a file reads no ids, so it costs the same for any size. A block
is checked when it is first read.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipelines.host.errors import UserError
from pipelines.host.files import write_file

BLOCK_TOKENS = 1 << 16
DTYPES = {"U16": "<u2", "U32": "<u4"}  # of ids, by the names of safetensors

Ids = NDArray[np.unsignedinteger]


@dataclass
class Shard:
    """A token file's description, in the file itself and in metadata.json."""

    file: str
    tokens: int
    documents: int
    bytes: int  # of text
    sha256: str  # of the ids
    source: str = ""  # SHA-256 of the part of the corpus


def token_dtype(vocab_size: int) -> str:
    """The smallest dtype, uint16 or uint32, that holds every token id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_tokens(
    path: Path, chunks: Iterable[tuple[Ids, int, int]], dtype: str, source: str = ""
) -> Shard:
    """Write a token file from chunks: ids, their documents and bytes of text; raises OSError."""
    parts = [np.empty(0, dtype)]
    documents = size = 0
    for ids, more_documents, more_bytes in chunks:
        assert ids.max(initial=0) <= np.iinfo(dtype).max
        parts.append(ids.astype(dtype))
        documents += more_documents
        size += more_bytes
    ids = np.concatenate(parts)
    shard = Shard(path.name, len(ids), documents, size, sha256(ids.data).hexdigest(), source)
    blocks = [crc32(ids[at : at + BLOCK_TOKENS].data) for at in range(0, len(ids), BLOCK_TOKENS)]
    tensors = {"ids": ids, "crc32": np.array(blocks, np.uint32)}
    # a single entry, because safetensors keeps no order of several
    write_file(path, save(tensors, {"shard": json.dumps(asdict(shard))}))
    return shard


def again(path: Path) -> str:
    """The command that makes a file again. Without -f, DVC misses damage that keeps the file's size
    and time.
    """
    return f"`dvc repro -f -s tokenize@{path.parent.name.removesuffix('.partial')}` makes it again"


class TokenFile:
    """Read-only token ids of a file; each block is checked when it is first read."""

    def __init__(self, path: Path) -> None:
        """Raises UserError if the file is missing, foreign or cut short."""
        self.path = path
        try:
            with safe_open(path, "np") as file:
                self.shard = Shard(**json.loads((file.metadata() or {})["shard"]))
                ids = file.get_slice("ids")
                (self.tokens,), self.dtype = ids.get_shape(), np.dtype(DTYPES[ids.get_dtype()])
                self.checksums: list[int] = file.get_tensor("crc32").tolist()
        except OSError as error:
            reason = str(error).partition(":")[0]
            raise UserError(f"{path}: {reason}; {again(path)}") from None
        except (SafetensorError, LookupError, TypeError, ValueError) as error:
            words = " ".join(str(error).split())
            raise UserError(
                f"{path}: not a token file, or damaged ({words}); {again(path)}"
            ) from None
        self.checked = bytearray(len(self.checksums))  # 1 for each checked block

    def __len__(self) -> int:
        return self.tokens

    def map(self) -> Ids:
        """All ids (tokens,), unchecked and memory-mapped, so the system reads them on access."""
        if not len(self):
            return np.empty(0, self.dtype)
        start = self.path.stat().st_size - len(self) * self.dtype.itemsize  # ids are last
        return np.asarray(np.memmap(self.path, self.dtype, "r", start))

    def check(self, ids: Ids, start: int, stop: int) -> None:
        """Raise UserError if a block of ``ids`` with tokens ``start`` … ``stop`` − 1 is damaged."""
        size = BLOCK_TOKENS
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
