"""Stage data: seeded, disjoint, without duplicates, in the promised shares, never done twice."""

import json
import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from math import log
from pathlib import Path

import pytest
import torch
from filelock import FileLock, Timeout

from ftmodel.synthetic.process import Process
from ftmodel.synthetic.registry import PROCESSES
from ftmodel.synthetic.target_task import exact_log_probability
from pipelines.artifacts import corpus
from pipelines.artifacts.corpus import SPLITS, documents, parts
from pipelines.common import errors
from pipelines.common.errors import UserError
from pipelines.config.data import Files, Hub, ProcessData, TextData
from pipelines.data import build as stage, resume
from pipelines.data.build import make_parts, make_process, make_text, process_texts
from tests.support.mutants import rejects
from tests.train.test_full_disk import small_disk


def process_split(source="target", **changes):
    settings = {"train_sequences": 3000, "validation_sequences": 500, "seed": 1} | changes
    return {k: list(v) for k, v in process_texts(ProcessData(source, **settings)).items()}


def test_process_corpus_is_seeded_and_has_the_promised_size():
    first, again, other = process_split(), process_split(), process_split(seed=2)
    assert first == again and first["train"] != other["train"]
    assert (len(first["train"]), len(first["validation"])) == (3000, 500)
    symbols = PROCESSES["target"].symbols
    rows = torch.tensor([[symbols.index(c) for c in text] for text in first["train"][:50]])
    assert exact_log_probability(rows).isfinite().all()


def test_no_held_out_sequence_occurs_in_training():
    """Among so many, some of those without noise would."""
    texts = process_split(train_sequences=20_000, validation_sequences=4000)
    assert not set(texts["train"]) & set(texts["validation"])


def test_a_process_of_few_sequences_keeps_its_distribution(monkeypatch):
    """A coin, twice: leaving out what is held out would leave nothing to train on."""
    coins = Process(
        symbols=("0", "1"),
        separator=" ",
        row=2,
        sample=lambda n, rng: torch.randint(2, (n, 2), generator=rng),
        log_probability=lambda rows: torch.full((len(rows),), -log(2)),
    )
    monkeypatch.setitem(PROCESSES, "coins", coins)
    counts = Counter(process_split("coins", train_sequences=4000)["train"])
    assert sorted(counts) == ["0 0", "0 1", "1 0", "1 1"]
    assert all(900 < count < 1100 for count in counts.values())


def test_a_process_is_written_as_its_texts(tmp_path):
    make_process("x", data := ProcessData("target", 300, 20), tmp_path / "x")
    for split, texts in process_texts(data).items():
        (part,) = parts(tmp_path / "x", split)
        assert [text.decode() for _, text in documents(part)] == list(texts)


def text_data(*roots, weights=None, **changes):
    """Text from JSON Lines in folders, called a, b, …"""
    names = "abcdefgh"[: len(roots)]
    mixed = {
        name: Files(root=str(root), pattern="*.jsonl", weight=weight)
        for name, root, weight in zip(names, roots, weights or [1.0] * len(roots), strict=True)
    }
    entry = {"parts": mixed, "validation_share": 0.3, "vocab_size": 300, **changes}
    return TextData(**entry)


def write_lines(folder, texts):
    folder.mkdir(exist_ok=True, parents=True)
    rows = (json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "texts.jsonl").write_text("".join(rows))
    return folder


def documents_of(target):
    """Of each split the documents."""
    return {s: [d for part in parts(target, s) for d in documents(part)] for s in SPLITS}


def texts_of(target):
    return {split: [text for _, text in content] for split, content in documents_of(target).items()}


def test_the_hash_of_seed_and_bytes_says_the_split(tmp_path):
    texts = [f"document {i} ≠" for i in range(500)]
    for seed in (0, 1):  # whatever other documents there are, that is
        make_text("x", text_data(write_lines(tmp_path / "in", texts), seed=seed), tmp_path / "x")
        held_out = texts_of(tmp_path / "x")["validation"]
        assert held_out == [
            text.encode()
            for text in texts
            if int(sha256(f"{seed}:{text}".encode()).hexdigest()[:16], 16) < 0.3 * 2**64
        ]
        assert 100 < len(held_out) < 200


def test_equal_and_empty_documents_are_left_out_and_counted(tmp_path, capsys):
    texts = [f"{i % 50}" for i in range(120)] + [""] * 3
    target = tmp_path / "x"
    make_text("x", text_data(write_lines(tmp_path / "in", texts)), target)
    kept = documents_of(target)
    assert sorted(text for split in kept.values() for _, text in split) == sorted(
        str(i).encode() for i in range(50)
    )
    assert all(int(i.rpartition(":")[2]) <= 50 for split in kept.values() for i, _ in split)
    said = capsys.readouterr().out
    assert "x left out: 70 duplicates, 3 empty documents" in said
    assert f"x train: {len(kept['train'])} documents" in said
    make_text("x", text_data(tmp_path / "in", deduplicate=False), target)
    assert sum(map(len, documents_of(target).values())) == 120


@rejects(
    "«salt.copy(→sha256(due.encode()»)", "documents that two parts of a mixture have are kept twice"
)
def test_a_document_of_two_parts_is_left_out_of_the_second(tmp_path, capsys):
    a, b = (write_lines(tmp_path / part, ["both", f"only {part}"]) for part in "ab")
    make_text("x", text_data(a, b, weights=[1.0, 1.0]), tmp_path / "x")
    kept = [text for split in documents_of(tmp_path / "x").values() for _, text in split]
    assert sorted(kept) == [b"both", b"only a", b"only b"]
    assert "x left out: 1 duplicates, 0 empty documents" in capsys.readouterr().out


def test_a_mixture_has_the_shares_of_bytes_that_its_weights_say(tmp_path, capsys):
    """In order too: at every point the parts are within a document of their shares."""
    a = write_lines(tmp_path / "a", [f"a{i}" * 30 for i in range(400)])
    b = write_lines(tmp_path / "b", [f"b{i}" for i in range(4000)])
    c = write_lines(tmp_path / "c", [f"c{i}" * 4 for i in range(40)])
    target = tmp_path / "x"
    make_text("x", text_data(a, b, c, weights=[3.0, 1.0, 0.5], deduplicate=False), target)
    sizes = Counter()
    for split in documents_of(target).values():
        for identity, text in split:
            sizes[identity[0]] += len(text)
    assert sizes["c"] == sum(len(f"c{i}" * 4) for i in range(40))  # it ran out, and all ended
    assert sizes["a"] / 3 == pytest.approx(sizes["c"] / 0.5, abs=150 / 3 + 12 / 0.5)
    assert sizes["b"] / 1 == pytest.approx(sizes["c"] / 0.5, abs=6 / 1 + 12 / 0.5)
    assert f"x of c: 40 documents, {sizes['c']:,} bytes" in capsys.readouterr().out


def test_one_part_is_read_whole_or_up_to_max_bytes(tmp_path):
    folder = write_lines(tmp_path / "in", [f"{i:04d}" for i in range(100)])
    for limit, count in ((None, 100), (201, 51), (200, 50), (10_000, 100)):
        make_text("x", text_data(folder, max_bytes=limit), tmp_path / "x")
        assert sum(map(len, documents_of(tmp_path / "x").values())) == count


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(corpus, "PART_BYTES", 200)


def mixed_data(folder):
    """Three parts, of which one is read by `datasets`."""
    data = text_data(folder / "a", folder / "b", weights=[1.0, 2.0])
    data.parts["c"] = Hub(dataset="json", data_files=[str(folder / "c/*.jsonl")], weight=1.5)
    return data


def mixed_sources(folder):
    """With duplicates within and among them."""
    write_lines(folder / "a", [f"a document {i % 90}" for i in range(120)])
    write_lines(folder / "b", ["a document 7"] + [f"b {i}" * 5 for i in range(70)])
    write_lines(folder / "c", [f"c text {i}" for i in range(300)])
    return mixed_data(folder)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mtimes(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


class Killed(BaseException):
    pass


def killed_after(monkeypatch, count, data, target):
    """Die when one document more than ``count`` is taken; the parts that were finished."""
    taken = []
    inherited = corpus.PartWriter.add

    def add(self, identity, text):
        taken.append(identity)
        if len(taken) > count:
            raise Killed
        return inherited(self, identity, text)

    with monkeypatch.context() as patch:
        patch.setattr(corpus.PartWriter, "add", add)
        with pytest.raises(Killed):
            make_text("x", data, target)
    return mtimes(target.with_name("x.partial") / "parts")


def test_a_killed_stage_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path, small_parts, monkeypatch, capsys
):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    make_text("x", data, target)
    right, said = contents(target), capsys.readouterr().out
    assert min(sum(name.startswith(split) for name in right) for split in SPLITS) > 3
    kept = {}
    for count in (3, 20, 33, 34, 35, 61, 1):  # further each time, as most go on
        now = killed_after(monkeypatch, count, data, target)
        assert kept.items() <= now.items()  # no finished part is written again
        kept = now
    assert 5 < len(kept) < len(right)
    make_text("x", data, target)
    assert contents(target) == right
    assert kept.items() <= mtimes(target).items()
    assert capsys.readouterr().out.endswith(said)  # the counts as well
    assert not target.with_name("x.partial").exists()


@contextmanager
def another(what, data, folder):
    """Something such that work begun before fits no more, undone at the end."""
    with pytest.MonkeyPatch.context() as patch:
        if what == "settings":
            patch.setattr(data, "seed", 1)
        elif what == "code":
            patch.setattr(resume, "code_version", lambda stage: "other")
        else:
            os.rename(folder / "a", folder / "a-before")
            write_lines(folder / "a", [f"another {i}" for i in range(80)])
        yield
    if what == "a":
        shutil.rmtree(folder / "a")
        os.rename(folder / "a-before", folder / "a")


@pytest.mark.parametrize("what", ["settings", "code", "a"])
def test_work_that_fits_no_more_is_set_aside_and_taken_up_when_it_fits_again(
    tmp_path, small_parts, monkeypatch, what, capsys
):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    make_text("y", data, tmp_path / "y")
    parts_before = killed_after(monkeypatch, 120, data, target)
    assert len(parts_before) > 3
    with another(what, data, tmp_path):
        capsys.readouterr()
        make_text("x", data, target)
        said = capsys.readouterr().out
        make_text("z", data, tmp_path / "z")
    (aside,) = tmp_path.glob("x.partial.*")
    changed = "what was read of a has changed"
    reason = changed if what == "a" else f"changed since it was begun: {what}"
    assert f"documents of unfinished work are set aside as {aside} ({reason}), to go on" in said
    assert "goes on" not in said
    assert contents(target) == contents(tmp_path / "z")
    capsys.readouterr()
    make_text("x", data, target)
    said = capsys.readouterr().out
    assert f"x: takes up the work set aside as {aside}\nx: goes on behind " in said
    assert contents(target) == contents(tmp_path / "y")
    assert parts_before.items() <= mtimes(target).items()
    assert not [*tmp_path.glob("x.partial*")]


def test_the_last_unfinished_works_are_kept_aside_and_change_places(
    tmp_path, small_parts, monkeypatch, capsys
):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    asides, finished = [], {}
    for seed in (0, 1, 0, 1, 2, 3, 0, 4):  # the last 0 is the oldest of three
        data.seed = seed
        now = killed_after(monkeypatch, 1 if seed in finished else 60, data, target)
        assert finished.get(seed, {}).items() <= now.items()
        finished[seed] = now
        before, asides = asides, resume.asides(tmp_path / "x.partial")
        assert len(asides) == min(len(finished) - 1, 3)
        said = capsys.readouterr().out
        assert ("is removed" in said) == (seed == 4)
    assert asides[1:] == before[:2]
    assert f"the last 3 such folders are kept, {before[2]} is removed\n" in said


DAMAGE = {
    "parts/train-00000.parquet": (Path.unlink, " is missing"),
    "ledger.sqlite": (lambda p: p.write_bytes(b"other" * 100), ": file is not a database"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_work_is_begun_anew(tmp_path, small_parts, monkeypatch, name, capsys):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    killed_after(monkeypatch, 60, data, target)
    damage, reason = DAMAGE[name]
    damage(path := tmp_path / "x.partial" / name)
    capsys.readouterr()
    make_text("x", data, target)
    said = capsys.readouterr().out
    assert f"{path}{reason}; the corpus is made from its beginning\n" in said
    assert "goes on" not in said
    make_text("y", data, tmp_path / "y")
    assert contents(target) == contents(tmp_path / "y")
    assert not [*tmp_path.glob("x.partial*")]


@rejects("if «primary(error) not in UNUSABLE→False»:", "locked work taken for damaged")
def test_a_ledger_that_is_locked_keeps_the_work(tmp_path, small_parts, monkeypatch, capsys):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    kept = killed_after(monkeypatch, 60, data, target)
    path = tmp_path / "x.partial/ledger.sqlite"
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError) as caught:
            make_text("x", data, target)
    assert str(caught.value) == f"{path}: database is locked (SQLITE_BUSY); work is kept"
    make_text("x", data, target)
    assert "goes on behind" in capsys.readouterr().out
    assert kept.items() <= mtimes(target).items()


@rejects(',« "exclude"→»):', "what is excluded decides whether finished work fits")
@pytest.mark.parametrize("repair", ["exclude", "mend"])
def test_a_bad_file_mended_or_left_out_costs_nothing_that_is_finished(
    tmp_path, small_parts, capsys, repair
):
    """As the message asks for."""
    write_lines(tmp_path / "b", [f"b {i}" for i in range(500)])
    write_lines(tmp_path / "a", [f"more {i}" for i in range(120)])
    (tmp_path / "a/z.jsonl").write_text("{")
    data = text_data(tmp_path / "a", tmp_path / "b", weights=[2.0, 1.0])
    with pytest.raises(UserError, match=r"z\.jsonl:1"):
        make_text("x", data, tmp_path / "x")
    kept = mtimes(tmp_path / "x.partial/parts")
    assert len(kept) > 3
    if repair == "exclude":
        data.parts["a"].exclude = ["z.jsonl"]
    else:
        (tmp_path / "a/z.jsonl").write_text('{"text": "mended"}')
    make_text("x", data, tmp_path / "x")
    said = capsys.readouterr().out
    assert "goes on behind" in said and "set aside" not in said
    assert kept.items() <= mtimes(tmp_path / "x").items()
    make_text("y", data, tmp_path / "y")
    assert contents(tmp_path / "x") == contents(tmp_path / "y")


def test_a_part_that_runs_out_is_told(tmp_path, capsys):
    a = write_lines(tmp_path / "a", [f"{i:03d}" for i in range(100)])
    b = write_lines(tmp_path / "b", [f"b {i:03d}" for i in range(900)])
    make_text("x", text_data(a, b, weights=[1.0, 3.0], max_bytes=4000), tmp_path / "x")
    expected = "x part a ran out at 300 of 1,000 bytes, which ended the mixture\n"
    assert capsys.readouterr().out.endswith(expected)
    make_text("x", text_data(a, b, weights=[1.0, 3.0], max_bytes=800), tmp_path / "x")
    make_text("x", text_data(a), tmp_path / "x")
    assert "ran out" not in capsys.readouterr().out


@pytest.mark.parametrize("same", [True, False])
def test_a_stage_that_waited_for_another_finds_the_work_done(tmp_path, monkeypatch, capsys, same):
    """The one that DVC left behind when it was killed; it may have made something else."""
    folder, target = write_lines(tmp_path / "in", map(str, range(50))), tmp_path / "x"
    make_text("x", text_data(folder), target)
    written = mtimes(target)
    if not same:
        write_lines(folder, map(str, range(60)))
    monkeypatch.setattr(stage, "alone", lambda path: nullcontext(path == target))
    make_text("x", text_data(folder), target)
    assert ("the other process has made it" in capsys.readouterr().out) == same
    assert (mtimes(target) == written) == same
    if same:
        make_text("x", text_data(folder, seed=1), target)
        assert mtimes(target) != written
        written = mtimes(target)
    monkeypatch.undo()
    make_text("x", text_data(folder, seed=1), target)  # asked for again, with nobody to wait for
    assert mtimes(target) != written


def test_one_process_at_a_time_makes_a_corpus(tmp_path, monkeypatch):
    inherited, lock = stage.make_parts, FileLock(tmp_path / "x.lock")

    def make(*arguments):
        with pytest.raises(Timeout):
            lock.acquire(timeout=0)
        return inherited(*arguments)

    monkeypatch.setattr(stage, "make_parts", make)
    make_text("x", text_data(write_lines(tmp_path / "in", map(str, range(50)))), tmp_path / "x")
    lock.acquire(timeout=0).lock.release()


def test_another_tokenizer_leaves_the_work_as_it_is(tmp_path, small_parts, monkeypatch, capsys):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    killed_after(monkeypatch, 60, data, target)
    data.vocab_size, data.tokenizer = None, "tokenizer.json"
    make_text("x", data, target)
    assert "goes on behind" in capsys.readouterr().out


def test_a_full_disk_is_one_line_and_finished_parts_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(corpus, "PART_BYTES", 200_000)
    noise = [os.urandom(5000).hex() for _ in range(400)]  # 4 MB, 2 of them on the disk
    data = text_data(write_lines(tmp_path / "in", noise))
    make_text("x", data, tmp_path / "x")
    with small_disk(tmp_path / "disk", "1m") as disk:
        with pytest.raises(SystemExit):
            errors.run(lambda: make_text("x", data, disk / "x"))
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == (
            f"error: {disk / 'x.partial'}: No space left on device; finished parts are kept, and "
            "the same command continues"
        )
        kept = contents(disk / "x.partial" / "parts")
        assert len(kept) > 2 and kept.items() <= contents(tmp_path / "x").items()


@pytest.mark.parametrize(
    ("texts", "changes", "words"),
    [
        ([], {}, r"data\.x\.parts: no text, but 1 empty documents"),
        (["a", "b"], {"validation_share": 1e-9}, r"data\.x\.validation_share: 1e-09 of 2 documents"
         " leaves the validation part empty; raise it"),
        (["a", "b"], {"validation_share": 0.999}, "leaves the train part empty; lower it"),
        (["a"], {}, "of 1 document leaves the validation part empty; cut it into several"),
    ],
)  # fmt: skip
def test_a_corpus_without_text_is_named(tmp_path, texts, changes, words):
    data = text_data(write_lines(tmp_path / "in", texts), **changes)
    with pytest.raises(UserError, match=words):
        make_parts("x", data, tmp_path / "x.partial")


def test_the_standard_library_is_read_from_where_it_is(tokenized):
    """As shipped, through the command: file for file what is there, or equal to another one."""
    folder = tokenized.folder / "data/corpus/stdlib"
    kept = dict(document for split in documents_of(folder).values() for document in split)
    root = os.path.dirname(os.__file__)
    assert len(kept) > 15
    for identity, text in kept.items():
        with open(os.path.join(root, identity.removeprefix("stdlib/")), "rb") as file:
            assert file.read() == text
