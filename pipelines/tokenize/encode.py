"""Parts of a corpus to token files, one part at a time, by several processes.

Worker processes import this module and what it needs, so it stays light: no torch, no omegaconf.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer
from pipelines.artifacts.tokens.token_file import Header, Ids, write_tokens
from pipelines.common.errors import UserError
from pipelines.tokenize.pieces import pieces

ENCODED_BYTES = 1 << 20  # at once, at least
MAX_FILES_WITHOUT_WORKERS = 2  # which take less time than starting workers


@dataclass(frozen=True)
class Task:
    """A part of a corpus to tokenize."""

    part: Path
    target: Path
    tokenizer: Path  # a tokenizer.json
    end_of_text: str | None  # None for rows
    row_length: int | None
    dtype: str
    source: bytes  # SHA-256 of the data and settings that decide the file


def text_chunks(
    part: Path, documents: Iterable[tuple[str, bytes]], tokens: ByteTokenizer
) -> Iterator[tuple[Ids, int, int]]:
    """Chunks for write_tokens of running text, an end-of-text id before each document, without
    documents that have a byte for which there is no token. Raises UserError naming a document that
    the tokens do not give back.
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

    batch: list[tuple[str, bytes, bool]] = []
    waiting = 0
    for name, text in documents:
        if tokens.cannot_spell(text):
            continue
        first = True
        for piece in pieces(text) if text else [b""]:
            batch.append((name, piece, first))
            first, waiting = False, waiting + len(piece)
            if waiting >= ENCODED_BYTES:
                yield encode(batch)
                batch, waiting = [], 0
    if batch:
        yield encode(batch)


def row_chunks(
    part: Path, documents: Iterable[tuple[str, bytes]], tokens: Tokenizer, row: int
) -> Iterator[tuple[Ids, int, int]]:
    """Chunks for write_tokens of rows; raises UserError naming a document that is not one."""

    def encode(batch: list[tuple[str, bytes]]) -> tuple[Ids, int, int]:
        encoded = tokens.encode_batch_fast([text.decode(errors="replace") for _, text in batch])
        for (name, _), encoding in zip(batch, encoded, strict=True):
            if len(encoding.ids) != row:
                raise UserError(
                    f"{part}: document {name!r} has {len(encoding.ids)} symbols, a row has {row}"
                )
        ids = np.array([encoding.ids for encoding in encoded], np.uint32)
        return ids.reshape(-1), len(batch), sum(len(text) for _, text in batch)

    batch: list[tuple[str, bytes]] = []
    for document in documents:
        batch.append(document)
        if len(batch) * row >= ENCODED_BYTES // 4:
            yield encode(batch)
            batch = []
    if batch:
        yield encode(batch)


def tokenize_part(task: Task) -> Header:
    """Write the token file of a part; raises UserError, or OSError where there is no room."""
    documents = corpus.documents(task.part)
    loaded = Tokenizer.from_file(str(task.tokenizer))
    if task.row_length is not None:
        chunks = row_chunks(task.part, documents, loaded, task.row_length)
    else:
        assert task.end_of_text is not None
        chunks = text_chunks(task.part, documents, ByteTokenizer(loaded, task.end_of_text))
    try:
        return write_tokens(task.target, chunks, task.dtype, task.source)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(task.target)) from None


def start_worker(threads: int) -> None:
    """In a new worker process: use ``threads`` cores, and end with the stage."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback: the stage prints one line
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def tokenize_parts(tasks: list[Task], cores: int) -> Iterator[tuple[Task, Header]]:
    """Write token files on ``cores`` cores, as they get done; raises UserError or OSError."""
    workers = min(cores, len(tasks))
    if workers == 1 or len(tasks) <= MAX_FILES_WITHOUT_WORKERS:  # all cores work on each batch
        yield from ((task, tokenize_part(task)) for task in tasks)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipelines.tokenize.encode"])
    pool = ProcessPoolExecutor(workers, context, start_worker, (cores // workers,))
    try:
        futures = {pool.submit(tokenize_part, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise UserError(
            "a tokenizing process was killed, perhaps out of memory; the same command "
            "continues with the rest"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
