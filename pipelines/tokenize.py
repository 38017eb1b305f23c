"""Stage `tokenize`: corpus to token shards.    python -m pipelines.tokenize <name>

Reads data/corpus/<name>, writes data/tokens/<name> (see shards.py).
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ftmodel.target_task import ALPHABET, ROW
from pipelines import errors
from pipelines.errors import UserError
from pipelines.schema import FilesData
from pipelines.shards import (
    END_OF_TEXT,
    SPLITS,
    Metadata,
    token_dtype,
    write_metadata,
    write_split,
)
from pipelines.stage import argument, load_stage, replace_folder

BATCH = 1000  # documents encoded at once


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a corpus file; raises UserError naming a line that is no document."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)["text"]
                except (ValueError, KeyError, TypeError):
                    raise UserError(f"{path}:{number}: not a document") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None


def character_tokenizer() -> Tokenizer:
    """One token a character of the target task; ids are places in its alphabet.

    BPE without merges, as it leaves out unknown characters where other models raise.
    """
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(ALPHABET)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def train_bpe(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE: every byte has a token, so any text goes in and comes back unchanged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.encode_special_tokens = True  # "<|endoftext|>" inside a text is text
    return tokenizer


def encode(
    tokenizer: Tokenizer, texts: Iterator[str], end_of_text: int | None
) -> Iterator[tuple[list[int], int]]:
    """Token ids and bytes of each text, ended by the end-of-text id where there is one."""
    end = [] if end_of_text is None else [end_of_text]
    while batch := list(islice(texts, BATCH)):
        for text, encoding in zip(batch, tokenizer.encode_batch(batch), strict=True):
            yield encoding.ids + end, len(text.encode())


def main() -> None:
    name = argument("dataset")
    data = load_stage("data", name).data[name]
    corpus = Path("data/corpus") / name
    if isinstance(data, FilesData):
        tokenizer = train_bpe(read_texts(corpus / "train.jsonl"), data.vocab_size)
        end_of_text, row_length = tokenizer.token_to_id(END_OF_TEXT), None
    else:
        tokenizer = character_tokenizer()
        end_of_text, row_length = None, ROW
    vocab_size = tokenizer.get_vocab_size()
    dtype = token_dtype(vocab_size)
    with replace_folder(Path("data/tokens") / name) as folder:
        tokenizer.save(str(folder / "tokenizer.json"))
        splits = {}
        for split in SPLITS:
            documents = encode(tokenizer, read_texts(corpus / f"{split}.jsonl"), end_of_text)
            splits[split] = write_split(folder, split, documents, dtype)
            done = splits[split]
            print(f"{name} {split}: {done.tokens:,} tokens of {done.documents:,} documents")
        write_metadata(folder, Metadata(vocab_size, dtype, row_length, end_of_text, splits))


if __name__ == "__main__":
    errors.run(main)
