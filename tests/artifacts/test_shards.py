"""Shards: several token files as one text, checked when opened, whatever is wrong named."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pipelines.artifacts.tokens import shards as shards_module
from pipelines.artifacts.tokens.shards import Overlap, Shards, read_metadata
from pipelines.host.errors import UserError
from tests.support.corpora import write_shards
from tests.support.mutants import rejects

FILES = [[0, *range(1, 40)], [0, 41, 42], [], [0, *range(43, 90), 0, 90]]
RUNNING = [i for ids in FILES for i in ids]


@rejects("Windows.__init__: or «context→self.length»", "windows a token apart")
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6), context=st.integers(1, 9))
@settings(max_examples=40)
def test_windows_are_those_of_one_running_text(tmp_path_factory, sizes, context):
    ids = iter(range(1, 1000))
    files = [[next(ids) for _ in range(size)] for size in sizes]
    running = [i for part in files for i in part]
    folder = tmp_path_factory.mktemp("shards")
    shards = write_shards(folder, files)
    expected = [
        running[start : start + context + 1] for start in range(0, len(running) - context, context)
    ]
    if not expected:
        words = f"{len(running)} tokens are fewer than one window of {context + 1}"
        with pytest.raises(UserError, match=words):
            shards.windows("train", context)
        return
    windows = shards.windows("train", context)
    assert len(windows) == len(expected)
    order = torch.randperm(len(expected))
    batch = windows.batch(order)
    assert batch.dtype == torch.int64
    assert batch.tolist() == [expected[i] for i in order]


@rejects(
    "Windows.read: «offset - self.starts[file]→max(0, offset - self.starts[file] - (file > 0))»",
    "windows off by one after the first token file",
)
def test_a_window_that_crosses_files_has_the_tokens_of_both(tmp_path):
    windows = write_shards(tmp_path, FILES).windows("train", 4)
    assert windows.batch(torch.tensor([9])).tolist() == [RUNNING[36:41]]
    assert windows.batch(torch.tensor([10, 12])).tolist() == [RUNNING[40:45], RUNNING[48:53]]


def test_few_files_are_kept_open(tmp_path, monkeypatch):
    """Each takes a file descriptor; a corpus has more parts than a process may open."""
    monkeypatch.setattr(shards_module, "MAX_OPEN_FILES", 1)
    windows = write_shards(tmp_path, FILES).windows("train", 4)
    everything = windows.batch(torch.arange(len(windows)))
    assert everything[:, :-1].flatten().tolist() == RUNNING[: 4 * len(windows)]
    assert windows.map.cache_info().currsize == 1


def test_documents_start_and_end_with_end_of_text(tmp_path):
    shards = write_shards(tmp_path, [*FILES, [0, 0, 5]])
    inner = [[*range(1, 40)], [41, 42], [*range(43, 90)], [90], [], [5]]
    documents = [*shards.documents("train")]
    assert [document.tolist() for document in documents] == [[0, *ids, 0] for ids in inner]
    assert documents[0].dtype == np.int64


def test_rows_are_documents_as_they_are(tmp_path):
    rows = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    files = [[*rows[0], *rows[1]], rows[2]]
    shards = write_shards(tmp_path, files, validation=[rows[0]], row=4)
    assert shards.metadata.splits["train"].left_out == 0
    assert [row.tolist() for row in shards.documents("train")] == rows
    windows = shards.windows("train", 3)
    assert windows.batch(torch.arange(3)).tolist() == rows
    with pytest.raises(UserError, match="context of 4 needs 5"):
        shards.windows("train", 4)
    with pytest.raises(UserError, match="symbols of a process, without an end of text"):
        shards.byte_tokenizer()


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def swap(folder):
    contents = [(path, path.read_bytes()) for path in sorted(folder.glob("train*"))[:2]]
    for (path, _), (_, content) in zip(contents, contents[::-1], strict=True):
        path.write_bytes(content)


def restate(path):
    path.write_bytes(path.read_bytes().replace(b'documents\\": 1', b'documents\\": 2'))


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: flip(folder / "train-00001.tokens", -1),
         r"train-00001\.tokens: damaged in block 0"),
        (swap, r"train-00000\.tokens: not the file of this name"),
        (lambda folder: restate(folder / "train-00000.tokens"), "not the file of this name"),
        (lambda folder: (folder / "train-00002.tokens").unlink(),
         r"train-00002\.tokens: No such file"),
        (lambda folder: cut(folder / "validation-00000.tokens"),
         r"validation-00000\.tokens: not a token file, or damaged"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json: No such file"),
    ],
)  # fmt: skip
def test_damage_is_named_when_a_small_corpus_is_opened(tmp_path, damage, words):
    write_shards(tmp_path / "x", FILES)
    Shards(tmp_path / "x")
    damage(tmp_path / "x")
    with pytest.raises(UserError, match=words) as caught:
        Shards(tmp_path / "x")
    assert "`dvc repro -f -s tokenize@x` makes it again" in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", '{"splits": {"train": {"shards": 3}}}', "\xff"])
def test_damaged_metadata_is_named(tmp_path, content):
    write_shards(tmp_path, FILES)
    (tmp_path / "metadata.json").write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"metadata\.json is damaged"):
        Shards(tmp_path)


def test_of_a_large_corpus_headers_are_checked_when_opened_and_blocks_when_read(
    tmp_path, monkeypatch
):
    write_shards(tmp_path, FILES)
    flip(tmp_path / "train-00003.tokens", -1)
    size = 2 * (len(RUNNING) + 2)  # two bytes a token; two are held out
    monkeypatch.setattr(shards_module, "CHECKED_BYTES", size)
    with pytest.raises(UserError, match=r"train-00003\.tokens: damaged in block 0"):
        Shards(tmp_path)
    monkeypatch.setattr(shards_module, "CHECKED_BYTES", size - 1)
    shards = Shards(tmp_path)
    windows = shards.windows("train", 4)
    windows.batch(torch.tensor([0, 5, 9]))
    for read in (
        lambda: windows.batch(torch.tensor([0, 12])),
        lambda: [*shards.documents("train")],
    ):
        with pytest.raises(UserError, match=r"train-00003\.tokens: damaged in block 0"):
            read()
    flip(tmp_path / "train-00003.tokens", 20)
    with pytest.raises(UserError, match=r"train-00003\.tokens: not a token file, or damaged"):
        Shards(tmp_path)


def test_a_folder_without_shards_is_named_with_what_makes_it(tmp_path):
    with pytest.raises(UserError, match=r"x: no token shards here; run `dvc repro tokenize@x`$"):
        Shards(tmp_path / "x")


def test_another_tokenizer_is_named(tmp_path):
    """When shards are opened, as training does not ask for it; and then, if it is replaced."""
    shards = write_shards(tmp_path / "x", FILES)
    path = tmp_path / "x/tokenizer.json"
    path.write_text('{"other": 1}')
    for use in (lambda: Shards(tmp_path / "x"), shards.tokenizer):
        with pytest.raises(UserError, match="were made with another tokenizer") as caught:
            use()
        assert str(caught.value).startswith(f"{path}: ")
        assert str(caught.value).endswith("`dvc repro -f -s tokenize@x` makes it again")


@rejects("Metadata.hash: SPLITS«→[:1]»", "data told apart by the training part alone")
def test_the_hash_tells_every_change_of_tokens_and_tokenizer(tmp_path):
    """And stays where the same shards are moved."""
    corpora = [
        ([[0, 1, 2], [0, 3]], [[0, 1]]),
        ([[0, 1, 3], [0, 3]], [[0, 1]]),
        ([[0, 3], [0, 1, 2]], [[0, 1]]),
        ([[0, 1, 2], [0, 3]], [[0, 2]]),
    ]
    hashes = [
        write_shards(tmp_path / f"{i}", train, validation).metadata.hash
        for i, (train, validation) in enumerate(corpora)
    ]
    assert len(set(hashes)) == len(hashes) and {*map(len, hashes)} == {16}
    shutil.move(tmp_path / "0", tmp_path / "moved")
    assert Shards(tmp_path / "moved").metadata.hash == hashes[0]
    text = (tmp_path / "moved/metadata.json").read_text()
    assert '\n  "splits": {\n    "train": {' in text
    raw = json.loads(text) | {"tokenizer": "0" * 64}
    (tmp_path / "moved/metadata.json").write_text(json.dumps(raw))
    assert read_metadata(tmp_path / "moved").hash not in hashes


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((40, 1, 2000, 50, True), "2.50 % of 2,000 held-out tokens, in 1 of 40 documents"),
        ((1, 1, 1, 1, False), "100.00 % of the first 1 held-out tokens, in 1 of 1 documents"),
        ((0, 0, 0, 0, True), "0.00 % of 0 held-out tokens, in 0 of 0 documents"),
    ],
)
def test_an_overlap_in_words(counts, words):
    assert str(Overlap(13, *counts)).startswith(f"{words}, are in 13-grams of tokens")
