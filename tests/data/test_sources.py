"""Readers: every format gives the same bytes, from any position; what is wrong is named."""

import gzip
import json
import os
from itertools import islice
from types import SimpleNamespace

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipelines.config import data as config
from pipelines.config.data import Files, Hub
from pipelines.data import sources
from pipelines.data.sources import open_source
from pipelines.host.errors import UserError
from tests.support.arrivals import arrives
from tests.support.mutants import rejects

KEY = "data.x.parts.p"
TEXTS = ["eins\n", "", "zwei ≠ 2\r\n\t", "\x00 drei", "日本語 🎲" * 50, " "] * 30


def lines(texts, field="text"):
    rows = [json.dumps({"n": i, field: text}) for i, text in enumerate(texts)]
    return "\n".join([*rows[:5], " ", *rows[5:], ""]).encode()  # a blank line is none


def parquet(path, texts, kind=None, name="text"):
    table = pa.table({"n": pa.array(range(len(texts))), name: pa.array(texts, kind)})
    pq.write_table(table, path, row_group_size=50)


def twice(path, name):
    pq.write_table(pa.table([pa.array(["a"])] * 2, names=[name] * 2), path)


def files_source(root, pattern="**/*", **more):
    return open_source(KEY, Files(root=str(root), pattern=pattern, **more))


def texts_of(source):
    return [text for _, text in source.documents()]


def write_all(folder):
    """The same documents in every format that holds many."""
    raw = lines(TEXTS)
    (folder / "a.jsonl").write_bytes(raw)
    (folder / "b.ndjson.gz").write_bytes(gzip.compress(raw[:99]) + gzip.compress(raw[99:]))
    (folder / "c.jsonl.zst").write_bytes(zstandard.compress(raw))
    parquet(folder / "d.parquet", TEXTS)
    parquet(folder / "e.parquet", TEXTS, pa.large_string())
    parquet(folder / "f.parquet", [text.encode() for text in TEXTS], pa.binary())
    parquet(folder / "g.parquet", TEXTS, pa.string_view())
    parquet(folder / "h.parquet", TEXTS, pa.dictionary(pa.int32(), pa.string()))


@arrives("files", "source root pattern")
def test_every_format_gives_the_same_documents(tmp_path):
    write_all(tmp_path)
    for path in tmp_path.iterdir():
        assert texts_of(files_source(tmp_path, path.name)) == [t.encode() for t in TEXTS], path


def test_identities_say_where_a_document_comes_from(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("a")
    (tmp_path / "b.jsonl").write_bytes(lines(["x"] * 6))
    parquet(tmp_path / "c.parquet", ["x", "y"])
    identities = [identity for identity, _ in files_source(tmp_path).documents()]
    lines_with_text = [f"b.jsonl:{n}" for n in (1, 2, 3, 4, 5, 7)]
    assert identities == [*lines_with_text, "c.parquet:1", "c.parquet:2", "sub/a.txt"]


def test_bytes_that_are_no_utf_8_stay_as_they_are(tmp_path):
    latin = "Größe\r\n".encode("latin-1")
    (tmp_path / "a.txt").write_bytes(latin)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(latin))
    parquet(tmp_path / "c.parquet", [latin], pa.binary())
    (tmp_path / "d.jsonl").write_text('{"text": "half a pair: \\ud83d"}')
    assert texts_of(files_source(tmp_path)) == [latin] * 3 + [b"half a pair: \xed\xa0\xbd"]


@pytest.mark.parametrize("pattern", ["**/*.py", "*.py", "a/*.py", "*/b/*", "a/**/*.txt", "**/c?.*"])
def test_patterns_mean_what_they_mean_to_pathlib(tmp_path, pattern):
    for folder in ("", "a", "a/b", "a/b/c", "d/b", ".hidden"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        for name in ("c1.py", "c2.txt", ".c3.py", "x.PY"):
            (tmp_path / folder / name).write_text(folder + name)
    expected = {p.relative_to(tmp_path).as_posix() for p in tmp_path.glob(pattern) if p.is_file()}
    identities = [identity for identity, _ in files_source(tmp_path, pattern).documents()]
    assert len(expected) > 1 and len(identities) == len(expected) and set(identities) == expected


@arrives("files", "exclude")
@pytest.mark.parametrize(
    ("exclude", "kept"),
    [
        (["tests", "*.min.js", "x*"], "a/tests.js keep.js"),
        (["a/x.js", "a/*.min.js", "lib/x/"], "a/tests/x.js a/tests.js b/a/x.js keep.js x.js"),
        (["**/x.js", "lib/"], "a/tests.js a/y.min.js keep.js"),
    ],
)
def test_what_is_excluded_is_left_out(tmp_path, exclude, kept):
    """By name at any depth, or by path from the root if it has a slash."""
    paths = "a/tests.js", "a/tests/x.js", "a/x.js", "a/y.min.js", "b/a/x.js", "lib/x/x.js"
    for name in (*paths, "keep.js", "x.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    source = files_source(tmp_path, exclude=exclude)
    assert " ".join(identity for identity, _ in source.documents()) == kept


@arrives("files", "format")
def test_a_format_goes_before_the_name(tmp_path):
    (tmp_path / "a.json").write_bytes(lines(TEXTS))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(lines(TEXTS)))
    assert texts_of(files_source(tmp_path, format="jsonl")) == [t.encode() for t in TEXTS] * 2
    assert texts_of(files_source(tmp_path, format="text")) == [lines(TEXTS)] * 2
    parquet(tmp_path / "c.data", TEXTS)
    assert len(texts_of(files_source(tmp_path, "c.data", format="parquet"))) == len(TEXTS)


@arrives("files", "text_field")
def test_text_is_in_the_field_that_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(named("body", text="no"))
    pq.write_table(pa.table({"text": ["no"], "body": ["b"]}), tmp_path / "b.parquet")
    assert texts_of(files_source(tmp_path, text_field="body")) == [b"a", b"b"]


def test_files_without_documents_are_passed_over_and_a_text_of_no_byte_is_a_document(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b" \n\n")
    parquet(tmp_path / "b.parquet", [], pa.string())
    (tmp_path / "c.txt").write_bytes(b"")
    assert list(files_source(tmp_path).documents()) == [("c.txt", b"")]


def test_parquet_is_decoded_in_pieces_of_a_bounded_size(tmp_path, monkeypatch):
    """Long rows come by fewer, short ones not all at once."""
    monkeypatch.setattr(sources, "BATCH_BYTES", 10_000)
    pieces, inherited = [], sources.as_bytes
    monkeypatch.setattr(
        sources, "as_bytes", lambda column: pieces.append(len(column)) or inherited(column)
    )
    for length, most in ((1, 64), (1000, 10), (30_000, 1)):
        texts = [f"{i:0{length}d}" for i in range(200)]
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=100)
        assert len(texts_of(files_source(tmp_path))) == 200
        assert sum(pieces) == 200 and most / 2 < max(pieces) <= most, length
        assert length > 1 or max(pieces) == most
        pieces.clear()


def test_links_are_followed_but_not_for_ever(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "x.txt").write_text("x")
    (elsewhere / "back").symlink_to(root)
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "out").symlink_to(elsewhere)
    assert [identity for identity, _ in files_source(root).documents()] == ["a/out/x.txt"]


def hub(**changes):
    return Hub(**{"dataset": "json", "data_files": [], **changes})


def hub_files(folder):
    for number in range(3):
        (folder / f"{number}.jsonl").write_bytes(lines(TEXTS[number * 60 :][:60], "body"))
    return hub(data_files=[str(folder / "*.jsonl")], text_field="body")


@pytest.mark.parametrize("kind", ["files", "hub"])
def test_a_source_goes_on_from_any_position(tmp_path, kind):
    if kind == "files":
        write_all(tmp_path)
        (tmp_path / "c_empty.jsonl").write_bytes(b" \n\n")
        (tmp_path / "z.txt").write_text("plain")
        part = Files(root=str(tmp_path), pattern="*")
    else:
        part = hub_files(tmp_path)
    whole = list(open_source(KEY, part).documents())
    assert len(whole) == {"files": 8 * len(TEXTS) + 1, "hub": len(TEXTS)}[kind]
    for count in [0, 1, 2, 59, 60, 61, len(TEXTS), *range(0, len(whole), 97), len(whole)]:
        first, second = open_source(KEY, part), open_source(KEY, part)
        reading = first.documents()
        assert list(islice(reading, count)) == whole[:count]
        second.seek(json.loads(json.dumps(first.position())))
        assert list(second.documents()) == whole[count:], count
        assert list(reading) == whole[count:]


def version_of(part):
    return open_source(KEY, part).version


def test_groups_are_the_files_in_order_and_have_versions_of_their_own(tmp_path, monkeypatch):
    """A change of one file leaves what was read of other groups as it is."""
    monkeypatch.setattr(sources, "GROUP_BYTES", 100)
    for name, size in {"a": 40, "b": 60, "c": 1, "d": 300, "e": 99, "f": 1, "g": 1}.items():
        (tmp_path / name).write_text(name * size)
    source = files_source(tmp_path)
    groups = [*source.groups()]
    names = [[identity for identity, _ in group.documents()] for group in groups]
    assert names == [["a", "b"], ["c"], ["d"], ["e", "f"], ["g"]]
    before = [group.version for group in groups]
    os.utime(tmp_path / "c", ns=(1, 1))
    after = [group.version for group in files_source(tmp_path).groups()]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, True, True]


@arrives("hub", "data_files")
def test_files_that_datasets_reads_have_to_be_the_same(tmp_path):
    part = hub_files(tmp_path)
    version = version_of(part)
    assert version_of(part) == version
    (tmp_path / "1.jsonl").write_bytes(lines(["other"] * 9, "body"))
    assert version_of(part) != version


@arrives("hub", "revision")
@rejects("HubSource.__init__: = «revision =→»", "a hub's dataset read at a commit that is not kept")
def test_a_dataset_of_a_hub_is_read_at_the_commit_it_was_at(monkeypatch):
    asked, commits = [], {None: "c0", "branch": "c1"}

    def dataset_info(self, dataset, revision=None, timeout=None):
        assert dataset == "some/thing"
        return SimpleNamespace(sha=commits[revision])

    def load(dataset, subset, revision, **options):
        asked.append((dataset, revision))
        return datasets.Dataset.from_dict({"text": ["a", "b"]}).to_iterable_dataset()

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(datasets, "load_dataset", load)
    part = hub(dataset="some/thing")
    assert version_of(part) == version_of(part) == "c0"
    open_source(KEY, hub(dataset="some/thing", revision="branch"))
    assert asked == [("some/thing", "c0")] * 2 + [("some/thing", "c1")]
    commits[None] = "c2"
    assert version_of(part) == "c2"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lines(["y" * 101]), r"json: row 7: a document of more than"),
        (b'{"n": 1, "text": \n', rf"{KEY}: json cannot be read behind row 6"),
    ],
)
def test_a_bad_row_of_a_dataset_is_named(tmp_path, monkeypatch, bad, words):
    monkeypatch.setattr(sources, "MAX_DOCUMENT", 100)
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, content in zip(paths, (lines(["x"] * 6), bad), strict=True):
        path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        list(open_source(KEY, hub(data_files=[*map(str, paths)])).documents())


@arrives("hub", "source dataset text_field")
def test_a_dataset_is_read_by_the_librarys_own_code(tmp_path):
    assert texts_of(open_source(KEY, hub_files(tmp_path))) == [t.encode() for t in TEXTS]
    (tmp_path / "a.csv").write_text('n,text\n1,"a, b"\n')  # which `files` refuses
    table = hub(dataset="csv", data_files=[str(tmp_path / "a.csv")])
    assert texts_of(open_source(KEY, table)) == [b"a, b"]
    (tmp_path / "a.csv").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    with pytest.raises(UserError, match=r"a\.csv: a pointer of Git LFS"):
        open_source(KEY, table)
    folder = tmp_path / "dataset"
    folder.mkdir()
    parquet(folder / "train-0.parquet", [b"\xff", b"b"], pa.binary())
    parquet(folder / "test-0.parquet", ["held", "out"])
    assert texts_of(open_source(KEY, hub(dataset=str(folder)))) == [b"\xff", b"b"]


@arrives("hub", "split")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"dataset": "nobody/nothing"},
            r"nobody/nothing cannot be loaded \(no such host\).*HF_TOKEN",
        ),
        ({"dataset": "./none"}, r"\./none cannot be loaded"),
        ({"split": "valid"}, r"json cannot be loaded \(Bad split: valid"),
        ({"text_field": "txt"}, rf"no field 'txt' \({KEY}\.text_field\); it has n, body"),
        ({"text_field": "n"}, rf"json: row 1: field 'n' \({KEY}\.text_field\) is int, not text"),
        ({"data_files": ["/nowhere/*.jsonl"]}, "json cannot be loaded .*data_files"),
    ],
)
def test_a_dataset_that_cannot_be_had_is_one_line(tmp_path, monkeypatch, changes, words):
    def unreachable(*_, **__):
        raise ConnectionError("no such host")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    part = Hub(**vars(hub_files(tmp_path)) | changes)
    if "/" in part.dataset:
        part.data_files = []
    with pytest.raises(UserError, match=words) as caught:
        list(open_source(KEY, part).documents())
    assert KEY in str(caught.value) and "\n" not in str(caught.value)


@arrives("hub", "subset")
def test_an_unknown_subset_names_those_there_are(tmp_path):
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: small\n  data_files: small.jsonl\n"
        "- config_name: large\n  data_files: large.jsonl\n---\n"
    )
    for name in ("small", "large"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines([name]))
    assert texts_of(open_source(KEY, hub(dataset=str(tmp_path), subset="large"))) == [b"large"]
    with pytest.raises(UserError, match=rf"{KEY}.*'huge' not found.*small.*large.*subset"):
        open_source(KEY, hub(dataset=str(tmp_path), subset="huge"))


def test_each_kind_of_part_has_its_reader():
    assert {*sources.READERS} == {*config.KINDS.values()}


def named(field="text", **row):
    return json.dumps({field: "a"} | row).encode() + b"\n"


LONG_ZST = b"(\xb5/\xfd\0\x90 \0\0text\1\0\0"  # "text", in a window of 256 MiB
DAMAGED_ZST = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(999)))
DAMAGED_ZST[500] ^= 1
BAD = [
    ("a.txt", b"a\0b", rf"a\.txt: binary, or UTF-16.*{KEY}\.exclude"),
    ("a.txt", b"x" * 101, rf"a\.txt: a document of more than .*{KEY}\.exclude"),
    ("a.txt.gz", gzip.compress(b"x" * 101), r"a\.txt\.gz: a document of more"),
    ("a.txt.gz", gzip.compress(b"text")[:-9], r"a\.txt\.gz: cannot be read \(Truncated"),
    ("a.txt.gz", b"text", r"a\.txt\.gz: cannot be read .*incorrect header"),
    ("a.txt.gz", b"", r"a\.txt\.gz: cannot be read \(Truncated"),
    ("a.txt.zst", zstandard.compress(b"text")[:-2], r"a\.txt\.zst: cannot be read \(Truncated"),
    ("a.zst", LONG_ZST, r"a\.zst: cannot be read \(.*: zstd -d --long=31 .*a\.zst\)"),
    ("a.txt.zst", bytes(DAMAGED_ZST), r"a\.txt\.zst: cannot be read .*checksum"),
    ("a.jsonl", named() + b'{"text": "\xff"}', r"a\.jsonl:2: not a line of JSON in UTF-8"),
    ("a.jsonl", b"[" * 99 + b"\n", r"a\.jsonl:1: not a line of JSON"),
    ("a.jsonl", named() + b'["text"]', r"a\.jsonl:2: a JSON list, not an object"),
    ("a.jsonl", named() + named("body", k=1),
     rf"a\.jsonl:2: no field 'text' \({KEY}\.text_field\); it has body, k"),
    ("a.jsonl", b"\n" + named(text=7), rf"a\.jsonl:2: field 'text' \({KEY}\.text_field\) is int"),
    ("a.jsonl", named(text=None), r"a\.jsonl:1: field 'text' .* is null, not text"),
    ("a.jsonl", named() + named(text="x" * 101), r"a\.jsonl:2: a document of more"),
    ("a.json.gz", b"{}", rf"a\.json\.gz: .* JSON Lines; set {KEY}\.format to .*{KEY}\.exclude"),
    ("a.csv.gz", b"id,text", rf"a\.csv\.gz: a table, .* 'text' .*; set {KEY}\.format to text .*"),
    *(
        (name, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
         rf"{name}: a pointer of Git LFS, not the file itself; `git lfs pull` fetches that")
        for name in ("a.txt", "b.jsonl", "c.parquet")
    ),
    ("a.txt", b"/annex/objects/MD5-s9--ab\n", r"a\.txt: a pointer of git-annex, .*git annex get"),
    ("a.parquet", b"PAR1 nothing", r"a\.parquet: cannot be read"),
    ("a.parquet.gz", b"PAR1", r"a\.parquet\.gz: cannot be read .*compressed inside"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), BAD, ids=[f"{b[0]} {b[2]}" for b in BAD])
def test_a_bad_file_is_named_with_the_place(tmp_path, monkeypatch, name, content, words):
    monkeypatch.setattr(sources, "MAX_DOCUMENT", 100)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        list(files_source(tmp_path).documents())
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda p: parquet(p, ["a"], name="body"), r"no column 'text' .*; it has n, body"),
        (lambda p: parquet(p, [1]), rf"column 'text' \({KEY}\.text_field\) is of int64, n"),
        (lambda p: parquet(p, [None] * 2), "row 1: field 'text' .* is null"),
        (lambda p: twice(p, "text"), rf"several columns 'text' \({KEY}\.text_field\)"),
        (lambda p: parquet(p, [None] * 2, pa.string()), "row 1: field 'text' .* is null"),
        (lambda p: parquet(p, ["a"] * 70 + [None]), "row 71: field 'text' .* is null"),
        (lambda p: parquet(p, ["a"] * 70 + ["b" * 101]), "row 71: a document of more than"),
    ],
)
def test_bad_parquet_is_named(tmp_path, monkeypatch, write, words):
    monkeypatch.setattr(sources, "MAX_DOCUMENT", 100)
    write(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=rf"a\.parquet: {words}"):
        list(files_source(tmp_path).documents())


def test_damage_inside_parquet_is_noticed(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"document {i}" for i in range(1000)]})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"a\.parquet: cannot be read .*exclude"):
        list(files_source(tmp_path).documents())


def test_no_more_than_the_limit_is_read_of_a_huge_file(tmp_path):
    with open(tmp_path / "a.txt", "wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(UserError, match=r"a\.txt: a document of more than 256 MiB"):
        list(files_source(tmp_path).documents())


def test_files_that_are_none_or_may_not_be_read_are_named(tmp_path, monkeypatch):
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"gone\.txt: cannot be read \(No such file"):
        files_source(tmp_path)
    (tmp_path / "gone.txt").unlink()
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UserError, match=r"pipe\.txt: cannot be read .*exclude"):
        files_source(tmp_path)
    (tmp_path / "pipe.txt").unlink()
    (tmp_path / "a.txt").write_text("a")
    source = files_source(tmp_path)

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UserError, match=r"a\.txt: cannot be read \(Permission denied\)"):
        list(source.documents())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": "/nonexistent"}, rf"{KEY}\.root: /nonexistent is not a folder"),
        ({"pattern": "*.nothing"}, rf"{KEY}\.pattern: \*\.nothing matches no file under /"),
        ({"exclude": ["a.*"]}, rf"{KEY}\.pattern: .* that is not excluded"),
    ],
)
def test_no_file_at_all_is_named(tmp_path, changes, words):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UserError, match=words):
        open_source(KEY, Files(**{"root": str(tmp_path), "pattern": "**/*", **changes}))
