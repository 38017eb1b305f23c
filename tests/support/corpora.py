"""Small corpora and token shards, made on the spot."""

from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.shards import Metadata, Shards, Split, write_metadata
from pipelines.artifacts.tokens.token_file import token_dtype, write_tokens

END = 0  # id of the end of text in shards made by hand
VOCABULARY = 50  # of memory_shards
LENGTHS = (5, 40, 1, 16, 17, 100, 3, 3, 64, 12, 0, 33)  # ids of each document there


def write_corpus(folder: Path, **splits: list[list[bytes]]) -> Path:
    """A corpus whose splits have these parts of these documents."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, parts in splits.items():
        for number, texts in enumerate(parts):
            path = corpus.part_path(folder, split, number)
            corpus.write_part(path, [(f"{split}{i}", text) for i, text in enumerate(texts)])
    return folder


def write_shards(
    folder: Path, train: list[list[int]], validation=((0, 1),), vocab_size=1000, row=None
) -> Shards:
    """Token shards with these ids, a list a file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text("{}")
    splits = {}
    for split, files in {"train": train, "validation": validation}.items():
        shards = []
        for number, ids in enumerate(files):
            path = folder / f"{split}-{number:05d}.tokens"
            documents = len(ids) // row if row else list(ids).count(END)
            chunk = (np.array(ids, np.uint32), documents, 3 * len(ids))
            shards.append(write_tokens(path, [chunk], token_dtype(vocab_size)))
        tokens = sum(map(len, files))
        splits[split] = Split(tokens, sum(list(f).count(END) for f in files), 3 * tokens, shards)
    end = None if row else END
    digest = sha256(b"{}").hexdigest()
    write_metadata(folder, Metadata(vocab_size, token_dtype(vocab_size), row, end, digest, splits))
    return Shards(folder)


def memory_shards() -> SimpleNamespace:
    """Held-out documents [end] ids … [end] without files; a token's bytes are its id."""
    numbers = np.random.default_rng(0)
    ids = [numbers.integers(1, VOCABULARY, length) for length in LENGTHS]
    documents = [np.concatenate(([END], part, [END])) for part in ids]
    held_out = SimpleNamespace(tokens=sum(map(len, documents)))
    return SimpleNamespace(
        metadata=SimpleNamespace(splits={"validation": held_out}),
        documents=lambda split: iter(documents),
        token_bytes=lambda: torch.arange(VOCABULARY),
    )
