"""Stage `tokenize`: corpus to token shards.    python -m pipelines.tokenize <name>

Reads data/corpus/<name>, writes data/tokens/<name> (see shards.py): a token file for each part of
the corpus, by as many processes as there are cores. A run that was killed has left its finished
files in data/tokens/<name>.partial, and the next one goes on from there.

Worker processes import this module: what imports torch waits until main() runs.
"""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

from pipelines import corpus, errors, token_file, tokenizer
from pipelines.errors import UserError
from pipelines.files import replace_file, replace_folder
from pipelines.overlap import find_overlap
from pipelines.token_file import Header, Ids, TokenFile, token_dtype, write_tokens
from pipelines.tokenizer import ByteTokenizer, adopt, pieces, symbol_tokenizer, train_bpe

if TYPE_CHECKING:
    from pipelines.data_schema import Data, TextData

SAMPLE = 256 << 20  # bytes of text, at most, that a tokenizer is trained on
BATCH = 1 << 20  # bytes encoded at once, at least
FEW = 2  # token files that this process writes before others would have started


@dataclass(frozen=True)
class Task:
    """A part of a corpus to tokenise."""

    part: Path
    target: Path
    tokenizer: Path  # a tokenizer.json
    end_of_text: str | None  # None for rows
    row_length: int | None
    dtype: str
    source: bytes  # SHA-256 of all that decides the file


def training_sample(parts: list[Path]) -> Iterator[bytes]:
    """Documents from the start of every part, SAMPLE bytes in all at most, as even as they go."""
    left = SAMPLE
    for number, part in enumerate(parts):
        share = left // (len(parts) - number)
        for _, text in corpus.documents(part):
            yield text[:share]
            share, left = share - len(text[:share]), left - len(text[:share])
            if not share:
                break


def text_chunks(
    part: Path, documents: Iterable[tuple[str, bytes]], tokens: ByteTokenizer
) -> Iterator[tuple[Ids, int, int]]:
    """Chunks for write_tokens of running text: an end-of-text id, then the document, and so on.

    Raises UserError naming a document that the tokens do not give back.
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
        found = np.count_nonzero(chunk == tokens.end_of_text)
        if sizes[chunk].sum() != size or found != starts:
            for (name, text, _), ids in zip(batch, encoded, strict=True):
                if sizes[ids].sum() != len(text) or tokens.end_of_text in ids:
                    raise UserError(f"{part}: the tokens of document {name!r} are not its bytes")
        return chunk, starts, size

    batch: list[tuple[str, bytes, bool]] = []
    waiting = 0
    for name, text in documents:
        first = True
        for piece in pieces(text) if text else [b""]:
            batch.append((name, piece, first))
            first, waiting = False, waiting + len(piece)
            if waiting >= BATCH:
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
        if len(batch) * row >= BATCH // 4:
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


def finished(task: Task) -> Header | None:
    """The header of the file that a task is to write, if an earlier run has written it."""
    try:
        file = TokenFile(task.target)
        if file.header.source == task.source:
            file.read()
            return file.header
    except UserError:
        pass
    return None


def start_worker(threads: int) -> None:
    """In a new worker process: use ``threads`` cores, and end with the stage."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the stage says what there is to say
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def tokenize_parts(tasks: list[Task], cores: int) -> Iterator[tuple[Task, Header]]:
    """Write the token files of several parts on ``cores`` cores, as they get done.

    Raises UserError or OSError for the first that fails, once those under way are finished.
    """
    workers = min(cores, len(tasks))
    if workers == 1 or len(tasks) <= FEW:  # all cores work on each batch
        yield from ((task, tokenize_part(task)) for task in tasks)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipelines.tokenize"])
    pool = ProcessPoolExecutor(workers, context, start_worker, (cores // workers,))
    try:
        futures = {pool.submit(tokenize_part, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise UserError(
            "a process that was tokenising was killed, out of memory perhaps; the same command "
            "goes on with what is left"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def code() -> str:
    """SHA-256 of the source files that decide what is in a token file."""
    files = (__file__, tokenizer.__file__, token_file.__file__, corpus.__file__)
    return sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def content(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def text_tokenizer(
    key: str, data: "TextData", parts: list[Path], digests: dict[Path, str], path: Path
) -> ByteTokenizer:
    """The tokenizer that a data entry names, or has trained; written to ``path``, where an earlier
    run may have left it. Raises UserError.
    """
    if data.tokenizer is not None:
        try:
            adopted = adopt(Path(data.tokenizer), data.end_of_text)
        except UserError as error:
            raise UserError(f"{key}.tokenizer: {error}") from None
        save(adopted.tokenizer, path)
        return adopted
    assert data.vocab_size is not None
    made_from = repr((code(), data.vocab_size, data.end_of_text, [digests[p] for p in parts]))
    note = path.with_name("tokenizer.source")
    if path.exists() and note.exists() and note.read_text() == made_from + content(path):
        return ByteTokenizer(Tokenizer.from_file(str(path)), data.end_of_text)
    print(f"{key}: training a tokenizer", flush=True)
    try:
        trained = train_bpe(training_sample(parts), data.vocab_size, data.end_of_text)
    except UserError as error:
        raise UserError(f"{key}: {error}") from None
    if trained.vocab_size < data.vocab_size:
        print(f"{key}.vocab_size: {data.vocab_size}, but the text gives {trained.vocab_size}")
    save(trained.tokenizer, path)
    with replace_file(note) as file:
        file.write((made_from + content(path)).encode())
    return trained


def save(tokens: Tokenizer, path: Path) -> None:
    with replace_file(path) as file:
        file.write(tokens.to_str(pretty=True).encode())


def tokenize(name: str, data: "Data", source: Path, target: Path, cores: int) -> None:
    """Make token shards of the corpus in ``source``; raises UserError, or OSError if the disk is
    full. What does not depend on ``cores`` is everything but the time it takes.
    """
    from ftmodel.processes import PROCESSES
    from pipelines.data_schema import TextData
    from pipelines.shards import Metadata, Shard, Split, write_metadata

    parts = {split: corpus.parts(source, split) for split in corpus.SPLITS}
    digests = {part: content(part) for split in corpus.SPLITS for part in parts[split]}
    with replace_folder(target, keep=True) as folder:
        path = folder / "tokenizer.json"
        end_of_text = row = None
        if isinstance(data, TextData):
            tokens = text_tokenizer(f"data.{name}", data, parts["train"], digests, path)
            end_of_text, vocab_size = tokens.end_of_text, tokens.vocab_size
        else:
            process = PROCESSES[data.source]
            row, vocab_size = process.row, len(process.symbols)
            save(symbol_tokenizer(process.symbols, process.separator), path)
        metadata = Metadata(
            vocab_size,
            token_dtype(vocab_size),
            row,
            end_of_text,
            tokenizer=content(path),
            splits={},
        )
        tasks = {
            part: Task(
                part,
                folder / f"{part.stem}.tokens",
                path,
                data.end_of_text if isinstance(data, TextData) else None,
                row,
                metadata.dtype,
                sha256(repr((code(), metadata, digests[part])).encode()).digest(),
            )
            for split in corpus.SPLITS
            for part in parts[split]
        }
        headers = {part: header for part, task in tasks.items() if (header := finished(task))}
        kept = {path, path.with_name("tokenizer.source"), *(tasks[p].target for p in headers)}
        for stale in set(folder.iterdir()) - kept:
            stale.unlink()
        if headers:
            print(f"{name}: {len(headers)} of {len(tasks)} token files are there already")
        waiting = [task for part, task in tasks.items() if part not in headers]
        with tqdm(
            total=len(tasks), initial=len(headers), desc=name, unit="part", leave=False
        ) as bar:
            for task, header in tokenize_parts(waiting, cores):
                headers[task.part] = header
                bar.update()
        for split in corpus.SPLITS:
            found = [headers[part] for part in parts[split]]
            metadata.splits[split] = done = Split(
                tokens=sum(header.tokens for header in found),
                documents=sum(header.documents for header in found),
                bytes=sum(header.text_bytes for header in found),
                shards=[
                    Shard.of(tasks[part].target, header)
                    for part, header in zip(parts[split], found, strict=True)
                ],
            )
            print(f"{name} {split}: {done.tokens:,} tokens of {done.documents:,} documents")
        write_metadata(folder, metadata)
        if end_of_text is not None:
            files = {s: [TokenFile(tasks[p].target) for p in parts[s]] for s in corpus.SPLITS}
            overlap = find_overlap(
                files["validation"], files["train"], end_of_text, vocab_size, threads=cores
            )
            (folder / "overlap.json").write_text(json.dumps(asdict(overlap), indent=2) + "\n")
            print(f"{name}: {overlap.line()}")
        path.with_name("tokenizer.source").unlink(missing_ok=True)


def main() -> None:
    from pipelines.stage import argument, load_stage

    name = argument("dataset")
    data = load_stage("data", name).data[name]
    cores = len(os.sched_getaffinity(0))
    tokenize(name, data, Path("data/corpus") / name, Path("data/tokens") / name, cores)


if __name__ == "__main__":
    errors.run(main)
