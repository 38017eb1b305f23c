"""Encodes parts of a corpus into token files, one part at a time.

Worker processes import this module and what it needs, so it stays light: no torch, no omegaconf.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer
from pipelines.artifacts.tokens.token_file import Ids, Shard, write_tokens
from pipelines.host.errors import UserError

ENCODED_BYTES = 1 << 20  # encoded at once, at least
PIECE_BYTES = 1 << 16  # at most
LINE_END = re.compile(rb"[0-9A-Za-z](?=\n)")


@dataclass(frozen=True)
class Task:
    """A part of a corpus to tokenize."""

    part: Path
    target: Path
    tokenizer: Path  # a tokenizer.json
    end_of_text: str | None  # None for rows
    row_length: int | None
    dtype: str
    source: str  # SHA-256 of the part


def pieces(text: bytes) -> Iterator[bytes]:
    """Cut a long text into pieces of at most PIECE_BYTES, which are encoded one by one on several
    cores, if possible where a line ends in a letter or digit. The usual patterns cut there as well,
    so the tokens equal the whole text's.
    """
    start = 0
    while len(text) - start > PIECE_BYTES:
        stop = start + PIECE_BYTES
        line_ends = [match.end() for match in LINE_END.finditer(text, start, stop)]
        if line_ends:
            stop = line_ends[-1]
        else:  # not inside a character of UTF-8
            while stop > start + PIECE_BYTES - 3 and text[stop] & 0xC0 == 0x80:
                stop -= 1
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


def text_chunks(
    part: Path, documents: Iterable[tuple[str, bytes]], tokens: ByteTokenizer
) -> Iterator[tuple[Ids, int, int]]:
    """Chunks of running text for write_tokens, with an end-of-text id before each document. Leaves
    out documents that have a byte without a token. Raises UserError naming a document that the
    tokens do not give back.
    """
    sizes = tokens.sizes()

    def encode(batch: list[tuple[str, bytes, bool]]) -> tuple[Ids, int, int]:
        flat: list[int] = []
        encoded = tokens.encode_batch([text for _, text, _ in batch])
        for (_, _, first), ids in zip(batch, encoded, strict=True):
            flat += [tokens.end_of_text, *ids] if first else ids
        chunk = np.array(flat, np.uint32)
        starts = sum(first for _, _, first in batch)
        size = sum(len(text) for _, text, _ in batch)
        ends = np.count_nonzero(chunk == tokens.end_of_text)
        if sizes[chunk].sum() != size or ends != starts:
            for (name, text, _), ids in zip(batch, encoded, strict=True):
                if sizes[ids].sum() != len(text) or tokens.end_of_text in ids:
                    raise UserError(f"{part}: the tokens of document {name!r} are not its bytes")
        return chunk, starts, size

    spelled = (document for document in documents if not tokens.cannot_spell(document[1]))
    every = (
        (name, piece, number == 0)
        for name, text in spelled
        for number, piece in enumerate(pieces(text) if text else [b""])
    )
    yield from map(encode, corpus.batches(every, ENCODED_BYTES, lambda each: len(each[1])))


def row_chunks(
    part: Path, documents: Iterable[tuple[str, bytes]], tokens: Tokenizer, row: int
) -> Iterator[tuple[Ids, int, int]]:
    """Chunks of rows for write_tokens; raises UserError naming a document that is not a row."""

    def encode(batch: list[tuple[str, bytes]]) -> tuple[Ids, int, int]:
        encoded = tokens.encode_batch_fast([text.decode(errors="replace") for _, text in batch])
        for (name, _), encoding in zip(batch, encoded, strict=True):
            if len(encoding.ids) != row:
                raise UserError(
                    f"{part}: document {name!r} has {len(encoding.ids)} symbols, a row has {row}"
                )
        ids = np.array([encoding.ids for encoding in encoded], np.uint32)
        return ids.ravel(), len(batch), sum(len(text) for _, text in batch)

    yield from map(encode, corpus.batches(documents, ENCODED_BYTES // 4, lambda _: row))


def tokenize_part(task: Task) -> Iterator[Shard]:
    """Write the token file of a part; raises UserError, or OSError where there is no room."""
    documents = corpus.documents(task.part)
    loaded = Tokenizer.from_file(str(task.tokenizer))
    if task.row_length is not None:
        chunks = row_chunks(task.part, documents, loaded, task.row_length)
    else:
        assert task.end_of_text is not None
        chunks = text_chunks(task.part, documents, ByteTokenizer(loaded, task.end_of_text))
    try:
        yield write_tokens(task.target, chunks, task.dtype, task.source)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(task.target)) from None
