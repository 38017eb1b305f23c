"""Parts of a corpus: any bytes come back, and a damaged part is named."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings, strategies as st

from pipelines.artifacts import corpus
from pipelines.artifacts.corpus import documents, parts, write_parts
from pipelines.host.errors import UserError
from tests.support.mutants import rejects


def write(folder, content):
    assert write_parts(folder, "train", content) == len(content)
    return folder


@given(st.lists(st.tuples(st.text(), st.binary()), min_size=1))
@example([("", bytes(13))] * 12)
@settings(max_examples=25)
def test_any_documents_come_back_in_order_from_parts_as_large_as_said(tmp_path_factory, content):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "PART_BYTES", 40)
        patch.setattr(corpus, "GROUP_BYTES", 15)
        folder = write(tmp_path_factory.mktemp("corpus"), content)
    parts_read = [list(documents(path)) for path in parts(folder, "train")]
    assert [document for part in parts_read for document in part] == content
    sizes = [[len(text) for _, text in part] for part in parts_read]
    assert all(sum(part) >= 40 for part in sizes[:-1])
    assert all(sum(part[:-1]) < 40 for part in sizes)


def test_a_reader_holds_a_row_group_at_once_and_finds_rows_in_each(tmp_path):
    content = [(str(i), bytes(1 << 20)) for i in range(33)]
    part, last = parts(write(tmp_path, content), "train")
    assert len(list(documents(last))) == 1, "a part ends at 32 MiB"
    for rows in ([0, 3, 4, 9, 19], [8], []):
        assert [identity for identity, _ in documents(part, np.array(rows, int))] == [
            *map(str, rows)
        ]
    metadata = pq.ParquetFile(part).metadata
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert rows == [4] * 8
    column = metadata.row_group(0).column(1)  # which would hold whole texts twice:
    assert not column.is_stats_set and not column.has_dictionary_page


@pytest.fixture
def part(tmp_path):
    return parts(write(tmp_path, [(f"a/{i}", b"text %d\n" % i) for i in range(200)]), "train")[0]


def test_a_flipped_byte_never_passes_unnoticed(part):
    whole = part.read_bytes()
    right = list(documents(part))
    noticed = 0
    for offset in range(0, len(whole), 11):
        part.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
        try:
            assert list(documents(part)) == right  # what is damaged may not matter
        except UserError as error:
            assert str(part) in str(error) and "\n" not in str(error)
            noticed += 1
    assert noticed > len(whole) / 11 / 2


def test_a_truncated_or_foreign_part_is_named(part):
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(UserError, match=r"train-00000\.parquet: not a part .* or damaged"):
        list(documents(part))
    pq.write_table(pa.table({"body": ["a"]}), part)
    with pytest.raises(UserError, match=r"not a part of a corpus.*columns body"):
        list(documents(part))


@rejects("corpus.parts: return «paths→sorted(paths)»", "part 10 before part 2")
def test_parts_are_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    """Also where these have more digits than a name has room for: of 3 TB of text and more."""
    short = lambda folder, split, number: folder / f"{split}-{number}.parquet"  # noqa: E731
    monkeypatch.setattr(corpus, "part_path", short)
    for number in range(12):
        short(tmp_path, "train", number).touch()
    assert parts(tmp_path, "train") == [short(tmp_path, "train", number) for number in range(12)]


def test_missing_parts_are_named(tmp_path):
    with pytest.raises(UserError, match="no train part of a corpus here; run `dvc repro data`"):
        parts(tmp_path, "train")
    (tmp_path / "train-00001.parquet").touch()
    with pytest.raises(UserError, match=r"train-00000\.parquet is missing"):
        parts(tmp_path, "train")
