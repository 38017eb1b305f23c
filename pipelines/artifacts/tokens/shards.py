"""Token shards on disk: the token files of a data set, its tokenizer, and metadata.

<folder>/metadata.json     vocabulary, dtype, row length; counts and SHA-256 of every token file
<folder>/tokenizer.json    as read by `tokenizers`
<folder>/train-00000.tokens, …, validation-00000.tokens, …     one per part of the corpus

In running text a document is an end-of-text id and its tokens; in rows it is the row itself. The
files of a split are read as one text, in their order; no document crosses from one to the next.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from tokenizers import Tokenizer
from torch import Tensor

from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer
from pipelines.artifacts.tokens.token_file import Shard, TokenFile, again
from pipelines.host.errors import UserError
from pipelines.host.files import SPLITS

CHECKED_BYTES = 1 << 26  # at once, a tenth of a second; of more, a block when it is first read
MAX_OPEN_FILES = 256  # kept mapped; a map takes a file descriptor


@dataclass
class Split:
    tokens: int
    documents: int
    bytes: int  # of text, end-of-text tokens not counted
    shards: list[Shard]
    left_out: int = 0  # documents with a byte for which the tokenizer has no token


@dataclass
class Metadata:
    vocab_size: int
    dtype: str
    row_length: int | None  # tokens a row where every document is one row; None for running text
    end_of_text: int | None  # the id that starts a document of running text
    tokenizer: str  # SHA-256 of tokenizer.json
    splits: dict[str, Split]

    @property
    def hash(self) -> str:
        """One hash of all tokens, to tell runs on different data apart."""
        shards = (shard.sha256 for name in SPLITS for shard in self.splits[name].shards)
        return sha256(" ".join((self.tokenizer, *shards)).encode()).hexdigest()[:16]


@dataclass
class Overlap:
    """overlap.json: on the held-out part or, unless ``whole``, on its first tokens."""

    n: int  # tokens of an n-gram
    documents: int
    documents_with_overlap: int  # with one such n-gram or more
    tokens: int  # end-of-text tokens not counted
    tokens_overlapping: int
    whole: bool

    def __str__(self) -> str:
        return (
            f"{100 * self.tokens_overlapping / max(1, self.tokens):.2f} % of "
            f"{'' if self.whole else 'the first '}{self.tokens:,} held-out tokens, in "
            f"{self.documents_with_overlap:,} of {self.documents:,} documents, are in "
            f"{self.n}-grams of tokens that the training text has too"
        )


ADAPTER = TypeAdapter(Metadata)


def write_metadata(folder: Path, metadata: Metadata) -> None:
    (folder / "metadata.json").write_bytes(ADAPTER.dump_json(metadata, indent=2) + b"\n")


def read_metadata(folder: Path) -> Metadata:
    """Read metadata.json; raises UserError if it is missing or damaged."""
    path = folder / "metadata.json"
    try:
        metadata = ADAPTER.validate_json(path.read_bytes())
        if set(metadata.splits) != set(SPLITS):
            raise ValueError(f"splits {', '.join(metadata.splits)}")
        return metadata
    except FileNotFoundError:
        words = f"no token shards here; run `dvc repro tokenize@{folder.name}`"
        raise UserError(f"{folder}: {words}") from None
    except ValueError as error:
        words = " ".join(str(error).split())
        raise UserError(f"{path} is damaged ({words}); {again(path)}") from None


class Shards:
    """Read-only token shards. Headers are checked at once, ids too if few, else at first read."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError if the folder is missing, damaged, or its files do not fit together."""
        self.folder = folder
        self.metadata = read_metadata(folder)
        self.tokenizer_json()
        splits = self.metadata.splits.items()
        self.files = {name: [*map(self.open, split.shards)] for name, split in splits}
        files = [file for split in self.files.values() for file in split]
        if sum(len(f) * f.dtype.itemsize for f in files) <= CHECKED_BYTES:
            for file in files:
                file.read()

    def open(self, shard: Shard) -> TokenFile:
        file = TokenFile(self.folder / shard.file)
        if file.shard != shard or len(file) != shard.tokens:
            raise UserError(
                f"{file.path}: not the file of this name in metadata.json; {again(file.path)}"
            )
        return file

    def tokenizer_json(self) -> str:
        """The text of tokenizer.json; raises UserError if the shards were made with another one."""
        path = self.folder / "tokenizer.json"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; {again(path)}") from None
        if sha256(content).hexdigest() != self.metadata.tokenizer:
            raise UserError(
                f"{path}: by metadata.json, the token files of {self.folder} were made "
                f"with another tokenizer; {again(path)}"
            )
        return content.decode()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the shards; raises UserError as tokenizer_json does."""
        return Tokenizer.from_str(self.tokenizer_json())

    def byte_tokenizer(self) -> ByteTokenizer:
        """The byte-exact tokenizer; raises UserError if the shards hold symbols, not text."""
        if self.metadata.end_of_text is None:
            raise UserError(
                f"{self.folder}: its tokens are symbols of a process, without an end of text; "
                "benchmarks need a model of text"
            )
        tokenizer = self.tokenizer()
        end_of_text = tokenizer.id_to_token(self.metadata.end_of_text)
        assert end_of_text is not None
        return ByteTokenizer(tokenizer, end_of_text)

    def windows(self, split: str, context: int) -> "Windows":
        """All windows of context + 1 tokens: the rows, or running text cut every ``context``."""
        return Windows(self, split, context)

    def documents(self, split: str) -> Iterator[NDArray[np.int64]]:
        """Documents (tokens + 2,) with end-of-text ids at both ends, or rows (row,) as they are."""
        row, end = self.metadata.row_length, self.metadata.end_of_text
        for file in self.files[split]:
            ids = file.read()
            if row is not None:
                yield from ids.reshape(-1, row).astype(np.int64)
                continue
            assert end is not None
            for start, stop in pairwise([*np.flatnonzero(ids == end).tolist(), len(ids)]):
                yield np.append(ids[start:stop].astype(np.int64), end)

    def token_bytes(self) -> Tensor:
        """Bytes of text behind each token id of a byte-level vocabulary, (V,); 0 for specials."""
        return torch.from_numpy(self.byte_tokenizer().sizes())


class Windows:
    """Windows (context + 1,) of token ids, neighbours overlapping by one token in running text."""

    def __init__(self, shards: Shards, split: str, context: int) -> None:
        """Raises UserError if rows have another length, or the split is shorter than a window."""
        name = f"{shards.folder}, {split}"
        row = shards.metadata.row_length
        if row is not None and row != context + 1:
            raise UserError(
                f"{name}: rows of {row} tokens; a context of {context} needs {context + 1}"
            )
        self.files = [file for file in shards.files[split] if len(file)]
        self.starts = [0, *accumulate(len(file) for file in self.files)]
        self.length = context + 1
        self.stride = row or context
        self.count = max(0, (self.starts[-1] - self.length) // self.stride + 1)
        if self.count == 0:
            raise UserError(
                f"{name}: {self.starts[-1]} tokens are fewer than one window of {self.length}; "
                "the corpus is too small for this context"
            )
        self.map = lru_cache(MAX_OPEN_FILES)(lambda file: self.files[file].map())

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Tensor) -> Tensor:
        """Windows (len(indices), context + 1), int64; raises UserError naming a damaged block."""
        windows = np.empty((len(indices), self.length), np.int64)
        for window, index in zip(windows, indices.tolist(), strict=True):
            self.read(window, index * self.stride)
        return torch.from_numpy(windows)

    def read(self, into: NDArray[np.int64], offset: int) -> None:
        """Fill ``into`` (n,) with the tokens of the split from ``offset`` on."""
        file = bisect_right(self.starts, offset) - 1
        while len(into):
            first = offset - self.starts[file]
            ids = self.map(file)
            last = min(first + len(into), len(ids))
            self.files[file].check(ids, first, last)
            into[: last - first] = ids[first:last]
            # What is left is the beginning of the next file
            into = into[last - first :]
            offset += last - first
            file += 1
