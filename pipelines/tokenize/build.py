"""Stage `tokenize`: turn a corpus into token shards.

    python -m pipelines.tokenize target

Reads data/corpus/<name> and writes data/tokens/<name> (see artifacts/tokens/shards.py), a token
file for each part of the corpus. It uses a process per core. A killed run leaves its finished files
in data/tokens/<name>.partial, where the next run continues if code and data are the same.
"""

import json
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path

from ftmodel.synthetic.registry import PROCESSES
from pipelines.artifacts import corpus
from pipelines.artifacts.paths import corpus_folder, tokens_folder
from pipelines.artifacts.tokens.shards import Metadata, Shard, Split, write_metadata
from pipelines.artifacts.tokens.token_file import Header, TokenFile, token_dtype
from pipelines.common.arguments import DATASET
from pipelines.common.atomic_files import replace_folder, write_file
from pipelines.common.console import Bar
from pipelines.common.errors import UserError
from pipelines.common.machine import whole_cores
from pipelines.common.source_code import code_version
from pipelines.common.strict_json import dumps
from pipelines.config.data import Data, TextData
from pipelines.config.frozen import Check, freeze, unchecked
from pipelines.tokenize.encode import Task, tokenize_parts
from pipelines.tokenize.overlap import find_overlap
from pipelines.tokenize.vocabulary import save, sha256_of, symbol_tokenizer, text_tokenizer

ORIGIN = "origin"  # what the files of a .partial folder come from; not in the finished one


def drop_files_of_other_origin(name: str, folder: Path, origin: str) -> None:
    """Empty the folder of a killed run unless it had the same ``origin``."""
    note = folder / ORIGIN
    if note.exists() and note.read_text(encoding="utf-8") == origin:
        return
    if files := [*folder.iterdir()]:
        print(f"{name}: code or data changed since the run that was killed; begins anew")
    for path in files:
        path.unlink()
    write_file(note, origin)


def make_vocabulary(name: str, data: Data, train_parts: list[Path], path: Path) -> Metadata:
    """Write tokenizer.json at ``path``; metadata without splits. Raises UserError."""
    if isinstance(data, TextData):
        tokenizer = text_tokenizer(f"data.{name}", data, train_parts, path)
        row, end_of_text, vocab_size = None, tokenizer.end_of_text, tokenizer.vocab_size
    else:
        process = PROCESSES[data.source]
        row, end_of_text, vocab_size = process.row, None, len(process.symbols)
        save(symbol_tokenizer(process.symbols, process.separator), path)
    dtype = token_dtype(vocab_size)
    return Metadata(vocab_size, dtype, row, end_of_text, tokenizer=sha256_of(path), splits={})


def source_of(metadata: Metadata, part_sha256: str) -> str:
    """SHA-256 of the data and settings that decide a token file. The version of the code is left
    out: other code that makes the same tokens must leave every byte of the file the same.
    """
    vocabulary = (metadata.tokenizer, metadata.vocab_size, metadata.end_of_text)
    layout = (metadata.dtype, metadata.row_length)
    return sha256(json.dumps([*vocabulary, *layout, part_sha256]).encode()).hexdigest()


def finished_header(task: Task) -> Header | None:
    """The header of a task's token file, if a killed run has finished it."""
    try:
        file = TokenFile(task.target)
        if file.header.source == task.source:
            file.read()
            return file.header
    except UserError:
        pass
    return None


def write_token_files(
    name: str, tasks: dict[Path, Task], folder: Path, cores: int
) -> dict[Path, Header]:
    """Each task's header; finished files stay, whatever else is in ``folder`` is removed."""
    headers = {part: header for part, task in tasks.items() if (header := finished_header(task))}
    current = {folder / file for file in ("tokenizer.json", ORIGIN)}
    for path in set(folder.iterdir()) - current - {tasks[part].target for part in headers}:
        path.unlink()
    if headers:
        print(f"{name}: {len(headers)} of {len(tasks)} token files are there already")
    waiting = [task for part, task in tasks.items() if part not in headers]
    with Bar(
        len(tasks), initial=len(headers), desc=name, unit="part", leave=False, delay=1
    ) as progress:
        for task, header in tokenize_parts(waiting, cores):
            headers[task.part] = header
            progress.update()
    return headers


def make_split(tasks: list[Task], headers: list[Header]) -> Split:
    return Split(
        tokens=sum(header.tokens for header in headers),
        documents=sum(header.documents for header in headers),
        bytes=sum(header.text_bytes for header in headers),
        shards=[Shard.of(task.target, header) for task, header in zip(tasks, headers, strict=True)],
        left_out=sum(
            corpus.count_documents(task.part) - header.documents
            for task, header in zip(tasks, headers, strict=True)
        ),
    )


def write_overlap(name: str, folder: Path, metadata: Metadata, cores: int) -> None:
    assert metadata.end_of_text is not None
    held_out, training = (
        [TokenFile(folder / shard.file) for shard in metadata.splits[split].shards]
        for split in ("validation", "train")
    )
    end_of_text, vocab_size = metadata.end_of_text, metadata.vocab_size
    overlap = find_overlap(held_out, training, end_of_text, vocab_size, threads=cores)
    (folder / "overlap.json").write_text(dumps(asdict(overlap), indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {overlap}")


def tokenize(
    name: str, data: Data, source: Path, target: Path, cores: int, verify: Check = unchecked
) -> None:
    """Make token shards of the corpus in ``source``, the same for any number of ``cores``; raises
    UserError, that of ``verify`` once they are made, or OSError if the disk is full.
    """
    parts = {split: corpus.parts(source, split) for split in corpus.SPLITS}
    sha256s = {part: sha256_of(part) for split in corpus.SPLITS for part in parts[split]}
    with replace_folder(target, keep=True) as folder:
        training_text = [sha256s[part] for part in parts["train"]]  # of which a tokenizer is made
        origin = repr((code_version("tokenize"), data, training_text))
        drop_files_of_other_origin(name, folder, origin)
        tokenizer = folder / "tokenizer.json"
        metadata = make_vocabulary(name, data, parts["train"], tokenizer)
        end_of_text = data.end_of_text if isinstance(data, TextData) else None
        tasks = {
            part: Task(
                part=part,
                target=folder / f"{part.stem}.tokens",
                tokenizer=tokenizer,
                end_of_text=end_of_text,
                row_length=metadata.row_length,
                dtype=metadata.dtype,
                source=source_of(metadata, part_sha256),
            )
            for part, part_sha256 in sha256s.items()
        }
        headers = write_token_files(name, tasks, folder, cores)
        for split in corpus.SPLITS:
            counts = make_split(
                [tasks[part] for part in parts[split]], [headers[part] for part in parts[split]]
            )
            metadata.splits[split] = counts
            left_out = f"; {counts.left_out:,} left out" if counts.left_out else ""
            print(
                f"{name} {split}: {counts.tokens:,} tokens of {counts.documents:,} documents"
                + left_out
            )
        write_metadata(folder, metadata)
        if metadata.end_of_text is not None:
            write_overlap(name, folder, metadata, cores)
        verify()
        (folder / ORIGIN).unlink()


@DATASET
def main(name: str) -> None:
    frozen = freeze("tokenize", name)
    cores, target = whole_cores(), tokens_folder(name)
    verify = partial(
        frozen.check, f"finished token files stay in {target}.partial until others are made"
    )
    tokenize(name, frozen.experiment.data[name], corpus_folder(name), target, cores, verify)
