"""Token files: whole, or named as damaged, whatever byte is hit."""

import os
from hashlib import sha256
from zlib import crc32

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipelines.artifacts.tokens import token_file
from pipelines.artifacts.tokens.token_file import TokenFile, token_dtype, write_tokens
from pipelines.host.errors import UserError

IDS = np.arange(100, dtype=np.uint32) * 7


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(token_file, "BLOCK_TOKENS", 16)


def write(path, ids=IDS, dtype="uint16", step=30):
    chunks = [(ids[start : start + step], 1, 5) for start in range(0, len(ids), step)]
    return write_tokens(path, chunks, dtype)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("tokens", [0, 1, 16, 100])
def test_ids_and_counts_come_back(tmp_path, small_blocks, tokens, dtype):
    path = tmp_path / "a.tokens"
    written = write(path, IDS[:tokens], dtype)
    file = TokenFile(path)
    assert file.read().tolist() == IDS[:tokens].tolist()
    assert file.read().dtype == dtype
    assert file.shard == written
    documents = -(-tokens // 30)
    assert (written.file, written.tokens, len(file)) == ("a.tokens", tokens, tokens)
    assert (written.documents, written.bytes) == (documents, 5 * documents)
    assert written.sha256 == sha256(IDS[:tokens].astype(dtype).tobytes()).hexdigest()
    assert len(file.checksums) == -(-tokens // 16)
    assert load_file(path)["ids"].tolist() == IDS[:tokens].tolist(), "for other programs"


def test_a_block_has_65_536_tokens_in_every_file_there_is(tmp_path):
    ids = np.arange(65_537, dtype=np.uint32)
    write(tmp_path / "a.tokens", ids, "uint32", step=50_000)
    checksums = [crc32(part.tobytes()) for part in (ids[:65_536], ids[65_536:])]
    assert TokenFile(tmp_path / "a.tokens").checksums == checksums


def test_any_byte_that_changes_and_any_cut_is_found_and_the_file_named(tmp_path, small_blocks):
    """A cut, or bytes too many, as soon as the file is opened. Of a Shard that is damaged,
    metadata.json knows better.
    """
    path = tmp_path / "a.tokens"
    written = write(path, IDS[:40])
    whole = path.read_bytes()
    for offset in range(len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
        with pytest.raises(UserError, match=r"a\.tokens"):
            file = TokenFile(path)
            file.read()
            if file.shard != written:
                raise UserError("a.tokens")
        path.write_bytes(whole[:offset])
        with pytest.raises(UserError, match=r"a\.tokens"):
            TokenFile(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(UserError, match="not a token file, or damaged"):
        TokenFile(path)


def test_a_damaged_block_is_named_when_it_is_read_and_only_then(
    tmp_path, small_blocks, monkeypatch
):
    path = tmp_path / "a.tokens"
    write(path)
    content = bytearray(path.read_bytes())
    content[2 * (40 - len(IDS))] ^= 1  # token 40, of block 2; ids are last
    path.write_bytes(content)
    file = TokenFile(path)
    ids = file.map()
    file.check(ids, 0, 32)
    file.check(ids, 48, 100)
    for start, stop in ((0, 33), (47, 48), (0, 100)):
        with pytest.raises(UserError, match=r"a\.tokens: damaged in block 2 \(tokens 32 to 47\)"):
            file.check(ids, start, stop)
    monkeypatch.setattr(token_file, "crc32", None)
    file.check(ids, 0, 32)  # a block is checked once


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor):
        done.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    def renamed(*paths):
        done.append("renamed")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write(tmp_path / "a.tokens")
    assert done == [(tmp_path / "a.tokens").stat().st_size, "renamed"]


def test_a_dtype_holds_every_id_of_its_vocabulary():
    assert (token_dtype(65_536), token_dtype(65_537)) == ("uint16", "uint32")
