"""Corpora and shards: seeded, disjoint, exact, and checked when opened."""

import json
import shutil

import numpy as np
import pytest
import torch

from ftmodel.target_task import exact_log_probability
from pipelines.data import file_documents, target_documents
from pipelines.errors import UserError
from pipelines.schema import FilesData, TargetData
from pipelines.shards import (
    END_OF_TEXT,
    SPLITS,
    Metadata,
    Shards,
    token_dtype,
    write_metadata,
    write_split,
)
from pipelines.tokenize import character_tokenizer, read_texts, train_bpe


def target_texts(**changes):
    settings = {"train_sequences": 3000, "validation_sequences": 500, "seed": 1} | changes
    parts = target_documents(TargetData(**settings))
    return {name: [text for _, text in documents] for name, documents in parts.items()}


def test_target_corpus_is_seeded_and_has_the_promised_size():
    first, again, other = target_texts(), target_texts(), target_texts(seed=2)
    assert first == again
    assert first["train"] != other["train"]
    assert (len(first["train"]), len(first["validation"])) == (3000, 500)


def test_no_held_out_sequence_occurs_in_training(monkeypatch):
    """Without noise there are only 26 · 57 sequences, so that an unfiltered stream would repeat."""
    monkeypatch.setattr("ftmodel.target_task.NOISE", 0.0)
    texts = target_texts()
    assert not set(texts["train"]) & set(texts["validation"])


def files(tmp_path, **contents):
    for name, content in contents.items():
        (tmp_path / f"{name}.py").write_bytes(content)
    return {"root": str(tmp_path), "vocab_size": 300}


def test_a_file_never_changes_split_when_others_are_added(tmp_path):
    names = [f"f{i}" for i in range(40)]
    settings = files(tmp_path, **{n: b"x = 1\n" for n in names}) | {"validation_share": 0.3}

    def split():
        parts = file_documents("data.x", FilesData(**settings))
        return {identity: name for name, part in parts.items() for identity, _ in part}

    before = split()
    files(tmp_path, **{f"g{i}": b"y = 2\n" for i in range(40)})
    after = split()
    assert len(after) == 80
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": "/nonexistent"}, r"data\.x\.root"),
        ({"pattern": "*.nothing"}, r"data\.x\.pattern"),
        ({"validation_share": 1e-9}, "validation part empty"),
    ],
)
def test_a_corpus_without_files_is_named(tmp_path, changes, words):
    settings = files(tmp_path, a=b"x", b=b"y") | changes
    with pytest.raises(UserError, match=words):
        file_documents("data.x", FilesData(**settings))


def test_an_undecodable_file_is_named(tmp_path):
    settings = files(tmp_path, a=b"x", b=b"\xff\xfe\xff") | {"validation_share": 0.5, "seed": 0}
    parts = file_documents("data.x", FilesData(**settings))
    with pytest.raises(UserError, match=r"cannot read .*b\.py"):
        [list(documents) for documents in parts.values()]


def test_a_damaged_corpus_line_is_named(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"id": "0", "text": "a"}\n{"id": "1"}\n')
    with pytest.raises(UserError, match=r"train\.jsonl:2"):
        list(read_texts(tmp_path / "train.jsonl"))


def test_bpe_returns_any_text_unchanged():
    tokenizer = train_bpe(iter(["def f(x):\n    return x\n"] * 5), 300)
    for text in ("π ≠ 3\t\r\n", "\x00\x7f", "日本語 🎲", END_OF_TEXT, "  \n\n  "):
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text
        assert tokenizer.token_to_id(END_OF_TEXT) not in ids


def test_shards_hold_the_corpus_and_its_counts(tokenized):
    folder = tokenized.folder / "data/tokens/stdlib"
    shards = Shards(folder)
    metadata = shards.metadata
    corpus = tokenized.folder / "data/corpus/stdlib"
    sizes = shards.token_bytes()
    for split, counts in metadata.splits.items():
        texts = [json.loads(line)["text"] for line in open(corpus / f"{split}.jsonl")]
        tokens = np.fromfile(folder / f"{split}.bin", dtype=metadata.dtype)
        ends = np.flatnonzero(tokens == metadata.end_of_text)
        assert (len(tokens), len(texts)) == (counts.tokens, counts.documents)
        assert len(ends) == len(texts)
        assert ends[-1] == len(tokens) - 1
        assert counts.bytes == sum(len(t.encode()) for t in texts)
        assert int(sizes[tokens.astype(int)].sum()) == counts.bytes
        first = tokens[: ends[0]].tolist()
        assert shards.tokenizer().decode(first) == texts[0]


def test_target_rows_are_sequences_of_the_process(tokenized):
    windows = Shards(tokenized.folder / "data/tokens/target").windows("validation", 65)
    rows = windows.batch(torch.arange(len(windows)))
    assert rows.shape == (64, 66)
    assert exact_log_probability(rows).isfinite().all()
    assert character_tokenizer().decode(rows[0].tolist())[1] == ">"


def test_running_text_is_cut_into_windows_that_share_one_token(tokenized):
    windows = Shards(tokenized.folder / "data/tokens/stdlib").windows("train", 64)
    a, b = windows.batch(torch.tensor([0, 1]))
    assert a[-1] == b[0]
    last = windows.batch(torch.tensor([len(windows) - 1]))
    assert last.shape == (1, 65)


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32"), (131_072, "uint32")]
)
def test_token_ids_come_back_from_shards_of_any_vocabulary(tmp_path, vocab_size, dtype):
    ids = [0, 1, 255, 65_535, vocab_size - 1]
    splits = {n: write_split(tmp_path, n, [(ids, 5)], token_dtype(vocab_size)) for n in SPLITS}
    write_metadata(tmp_path, Metadata(vocab_size, token_dtype(vocab_size), None, 0, splits))
    windows = Shards(tmp_path).windows("train", 4)
    assert windows.batch(torch.tensor([0])).tolist() == [ids]
    assert (tmp_path / "train.bin").stat().st_size == len(ids) * np.dtype(dtype).itemsize


def copy_shards(tokenized, tmp_path):
    return shutil.copytree(tokenized.folder / "data/tokens/target", tmp_path / "target")


def test_a_truncated_shard_is_named(tokenized, tmp_path):
    folder = copy_shards(tokenized, tmp_path)
    (folder / "train.bin").write_bytes((folder / "train.bin").read_bytes()[:-2])
    with pytest.raises(UserError, match=r"train\.bin: 263998 bytes, but metadata\.json promises"):
        Shards(folder)


def test_damaged_metadata_is_named(tokenized, tmp_path):
    folder = copy_shards(tokenized, tmp_path)
    (folder / "metadata.json").write_text("{}")
    with pytest.raises(UserError, match=r"metadata\.json is damaged"):
        Shards(folder)


def test_a_context_that_does_not_fit_is_named(tokenized):
    with pytest.raises(UserError, match="context of 32 needs 33"):
        Shards(tokenized.folder / "data/tokens/target").windows("train", 32)
    with pytest.raises(UserError, match="too small for this context"):
        Shards(tokenized.folder / "data/tokens/stdlib").windows("train", 10**6)
