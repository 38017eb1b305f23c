"""Stage `tokenize`: corpus to token shards.    python -m pipelines.tokenize <name>

Reads data/corpus/<name>, writes data/tokens/<name> (see shards.py): a token file for each part of
the corpus, by as many processes as there are cores. A run that was killed has left its finished
files in data/tokens/<name>.partial, and the next one goes on from there.

Worker processes import this module too: what imports torch waits until main() runs.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tqdm import tqdm

from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.byte_tokenizer import (
    ByteTokenizer,
    adopt,
    symbol_tokenizer,
    train_bpe,
)
from pipelines.artifacts.tokens.token_file import Header, TokenFile, token_dtype
from pipelines.common.atomic_files import replace_file, replace_folder
from pipelines.common.errors import UserError
from pipelines.common.source_code import code_version
from pipelines.tokenize.encode import Task, tokenize_parts
from pipelines.tokenize.overlap import find_overlap

if TYPE_CHECKING:
    from pipelines.config.data import Data, TextData

SAMPLE = 256 << 20  # bytes of text, at most, that a tokenizer is trained on


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


def content(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def text_tokenizer(
    key: str, data: "TextData", parts: list[Path], made_from: str, path: Path
) -> ByteTokenizer:
    """The tokenizer that a data entry names, or has trained; written to ``path``, where an earlier
    run may have left it; ``made_from`` is all that decides a trained one. Raises UserError.
    """
    if data.tokenizer is not None:
        try:
            adopted = adopt(Path(data.tokenizer), data.end_of_text)
        except UserError as error:
            raise UserError(f"{key}.tokenizer: {error}") from None
        save(adopted.tokenizer, path)
        return adopted
    assert data.vocab_size is not None
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
    from ftmodel.synthetic.registry import PROCESSES
    from pipelines.artifacts.tokens.shards import Metadata, Shard, Split, write_metadata
    from pipelines.config.data import TextData

    parts = {split: corpus.parts(source, split) for split in corpus.SPLITS}
    digests = {part: content(part) for split in corpus.SPLITS for part in parts[split]}
    code = code_version("tokenize")
    with replace_folder(target, keep=True) as folder:
        path = folder / "tokenizer.json"
        end_of_text = row = None
        if isinstance(data, TextData):
            sources = [digests[part] for part in parts["train"]]
            made_from = repr((code, data.vocab_size, data.end_of_text, sources))
            tokens = text_tokenizer(f"data.{name}", data, parts["train"], made_from, path)
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
                sha256(repr((code, metadata, digests[part])).encode()).digest(),
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
    from pipelines.common.console import argument
    from pipelines.config.load import load_stage

    name = argument("dataset")
    data = load_stage("data", name).data[name]
    cores = len(os.sched_getaffinity(0))
    tokenize(name, data, Path("data/corpus") / name, Path("data/tokens") / name, cores)
