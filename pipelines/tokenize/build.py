"""Stage `tokenize`: turn a corpus into token shards."""

from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path

import tokenizers

from ftmodel.synthetic import PROCESSES
from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.shards import Metadata, Split, write_metadata
from pipelines.artifacts.tokens.token_file import Shard, TokenFile, token_dtype
from pipelines.cluster.workers import run_tasks
from pipelines.config.data import Data, TextData
from pipelines.config.load import Check, freeze, unchecked
from pipelines.host.console import Bar
from pipelines.host.errors import UserError
from pipelines.host.files import (
    SPLITS,
    corpus_folder,
    dumps,
    replace_folder,
    tokens_folder,
    write_file,
)
from pipelines.host.machine import whole_cores
from pipelines.host.source_code import code_version
from pipelines.tokenize.encode import Task, tokenize_part
from pipelines.tokenize.overlap import find_overlap
from pipelines.tokenize.vocabulary import (
    sha256_of,
    symbol_tokenizer,
    text_tokenizer,
    write_tokenizer,
)

ORIGIN = "origin"  # says what a .partial folder's files come from; not in the finished one


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
    """Write tokenizer.json to ``path``; returns metadata without splits. Raises UserError."""
    if isinstance(data, TextData):
        tokenizer = text_tokenizer(f"data.{name}", data, train_parts, path)
        row_length = None
        end_of_text, vocab_size = tokenizer.end_of_text, tokenizer.vocab_size
    else:
        process = PROCESSES[data.source]
        row_length = process.row
        end_of_text, vocab_size = None, len(process.symbols)
        write_tokenizer(symbol_tokenizer(process.symbols, process.separator), path)
    dtype = token_dtype(vocab_size)
    return Metadata(
        vocab_size, dtype, row_length, end_of_text, tokenizer=sha256_of(path), splits={}
    )


def write_token_files(name: str, tasks: list[Task], folder: Path, cores: int) -> dict[Path, Shard]:
    """Write a token file for each part of the corpus, unless it is finished; delete all others."""
    for path in {*folder.glob("*.tokens*")} - {task.target for task in tasks}:
        path.unlink()
    shards: dict[Path, Shard] = {}
    for task in tasks:
        with suppress(UserError):  # a killed run has not made it, or not all of it
            file = TokenFile(task.target)
            if file.shard.source == task.source:
                file.read()  # raises if a block is damaged
                shards[task.part] = file.shard
    if shards:
        print(f"{name}: {len(shards)} of {len(tasks)} token files are there already")
    waiting = [task for task in tasks if task.part not in shards]
    with Bar(
        len(tasks), initial=len(shards), desc=name, unit="part", leave=False, delay=1
    ) as progress:
        for task, shard in run_tasks(tokenize_part, waiting, cores):
            shards[task.part] = shard
            progress.update()
    return shards


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
    """Make token shards of the corpus in ``source``, the same for any number of ``cores``. Raises
    UserError, also ``verify``'s once they are made, or OSError if the disk is full.
    """
    parts = {split: corpus.parts(source, split) for split in SPLITS}
    sha256s = {part: sha256_of(part) for part in chain(*parts.values())}
    # The vocabulary comes from the training text, or from a file of the user's
    of_tokenizer = [sha256s[part] for part in parts["train"]]
    if isinstance(data, TextData) and data.tokenizer and Path(data.tokenizer).is_file():
        of_tokenizer = [sha256_of(Path(data.tokenizer))]
    with replace_folder(target, keep=True) as folder:
        # Files of a killed run are taken if they come from the same code, settings and vocabulary
        code = code_version("tokenize"), tokenizers.__version__
        origin = repr((code, data, of_tokenizer))
        drop_files_of_other_origin(name, folder, origin)
        tokenizer = folder / "tokenizer.json"
        metadata = make_vocabulary(name, data, parts["train"], tokenizer)
        end_of_text = data.end_of_text if isinstance(data, TextData) else None
        row, dtype = metadata.row_length, metadata.dtype
        tasks = [
            Task(part, folder / f"{part.stem}.tokens", tokenizer, end_of_text, row, dtype, source)
            for part, source in sha256s.items()
        ]
        shards = write_token_files(name, tasks, folder, cores)
        for split, of_split in parts.items():
            made = [shards[part] for part in of_split]
            documents = sum(shard.documents for shard in made)
            counts = Split(
                tokens=sum(shard.tokens for shard in made),
                documents=documents,
                bytes=sum(shard.bytes for shard in made),
                shards=made,
                left_out=sum(map(corpus.count_documents, of_split)) - documents,
            )
            metadata.splits[split] = counts
            line = f"{name} {split}: {counts.tokens:,} tokens of {counts.documents:,} documents"
            if counts.left_out:
                line += f"; {counts.left_out:,} left out"
            print(line)
        write_metadata(folder, metadata)
        if metadata.end_of_text is not None:
            write_overlap(name, folder, metadata, cores)
        verify()
        (folder / ORIGIN).unlink()


def main(name: str) -> None:
    frozen = freeze("tokenize", name)
    cores, target = whole_cores(), tokens_folder(name)
    verify = partial(
        frozen.check, f"finished token files stay in {target}.partial until others are made"
    )
    tokenize(name, frozen.experiment.data[name], corpus_folder(name), target, cores, verify)
