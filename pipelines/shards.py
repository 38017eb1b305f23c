"""Token shards on disk: one flat file of token ids a split, memory-mapped, and its metadata.

<folder>/metadata.json     vocabulary, dtype, row length, and per split counts and SHA-256
<folder>/tokenizer.json    as read by `tokenizers`
<folder>/train.bin, validation.bin
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipelines.errors import UserError

SPLITS = ("train", "validation")
END_OF_TEXT = "<|endoftext|>"


@dataclass
class Split:
    tokens: int
    documents: int
    bytes: int  # of UTF-8 text, end-of-text tokens not counted
    sha256: str  # of the token file


@dataclass
class Metadata:
    vocab_size: int
    dtype: str
    row_length: int | None  # tokens a row where every document is one row; None for running text
    end_of_text: int | None  # the id between documents of running text
    splits: dict[str, Split]

    @property
    def hash(self) -> str:
        """One hash of all tokens, to tell runs on different data apart."""
        joined = "".join(self.splits[name].sha256 for name in SPLITS)
        return sha256(joined.encode()).hexdigest()[:16]


def token_dtype(vocab_size: int) -> str:
    """The smallest of two dtypes that holds every token id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_split(
    folder: Path, name: str, documents: Iterable[tuple[list[int], int]], dtype: str
) -> Split:
    """Append documents, (token ids, bytes of text) each, to a new token file."""
    digest, tokens, count, size = sha256(), 0, 0, 0
    with open(folder / f"{name}.bin", "wb") as file:
        for ids, text_bytes in documents:
            chunk = np.asarray(ids, dtype=dtype).tobytes()
            file.write(chunk)
            digest.update(chunk)
            tokens, count, size = tokens + len(ids), count + 1, size + text_bytes
    return Split(tokens, count, size, digest.hexdigest())


def write_metadata(folder: Path, metadata: Metadata) -> None:
    (folder / "metadata.json").write_text(json.dumps(asdict(metadata), indent=2) + "\n")


class Shards:
    """Read-only view of a folder of token shards; opening it costs nothing per token."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError if the folder is missing, damaged, or its files do not fit together."""
        self.folder = folder
        try:
            raw = json.loads((folder / "metadata.json").read_text())
            splits = {name: Split(**raw["splits"][name]) for name in SPLITS}
            self.metadata = Metadata(**{**raw, "splits": splits})
        except FileNotFoundError:
            raise UserError(f"{folder}: no token shards here; run `dvc repro tokenize`") from None
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{folder}/metadata.json is damaged: {error}") from None
        width = np.dtype(self.metadata.dtype).itemsize
        for name, split in splits.items():
            path = folder / f"{name}.bin"
            found = path.stat().st_size if path.exists() else 0
            if found != split.tokens * width:
                raise UserError(
                    f"{path}: {found} bytes, but metadata.json promises {split.tokens * width}"
                )

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def windows(self, split: str, context: int) -> "Windows":
        """All windows of context + 1 tokens: the rows, or running text cut every ``context``."""
        return Windows(self, split, context)

    def token_bytes(self) -> Tensor:
        """Bytes of text behind each token id of a byte-level vocabulary, (V,); 0 for specials.

        In such a vocabulary one character of a token stands for one byte.
        """
        sizes = torch.zeros(self.metadata.vocab_size, dtype=torch.long)
        for token, i in self.tokenizer().get_vocab().items():
            sizes[i] = 0 if i == self.metadata.end_of_text else len(token)
        return sizes


class Windows:
    """Windows (context + 1,) of token ids, neighbours overlapping by one token in running text."""

    def __init__(self, shards: Shards, split: str, context: int) -> None:
        """Raises UserError if rows have another length, or the split is shorter than a window."""
        metadata = shards.metadata
        path = shards.folder / f"{split}.bin"
        row = metadata.row_length
        if row is not None and row != context + 1:
            raise UserError(
                f"{path} has rows of {row} tokens; a context of {context} needs {context + 1}"
            )
        self.length = context + 1
        self.stride = row or context
        self.count = max(0, (metadata.splits[split].tokens - self.length) // self.stride + 1)
        if self.count == 0:
            raise UserError(
                f"{path}: {metadata.splits[split].tokens} tokens are fewer than one window of "
                f"{self.length}; the corpus is too small for this context"
            )
        self.data = np.memmap(path, dtype=metadata.dtype, mode="r")

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Tensor) -> Tensor:
        """Windows (len(indices), context + 1) as int64 token ids."""
        places = indices.numpy()[:, None] * self.stride + np.arange(self.length)
        return torch.from_numpy(self.data[places].astype(np.int64))
