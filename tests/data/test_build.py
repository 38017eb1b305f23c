"""Stage data: seeded, disjoint, without duplicates, in the promised shares, never done twice."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from errno import EMFILE, ENOSPC
from hashlib import sha256
from itertools import chain, repeat
from math import inf, log
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch
from filelock import Timeout
from hypothesis import example, given, settings, strategies as st

from ftmodel.synthetic import PROCESSES
from ftmodel.synthetic.process import Process
from ftmodel.synthetic.target import exact_log_probability
from pipelines.artifacts import corpus
from pipelines.artifacts.corpus import documents, parts
from pipelines.cluster import workers
from pipelines.config.data import Distributions, Files, Hub, ProcessData, TextData
from pipelines.data import build as stage, mixture, segments, sources
from pipelines.data.build import make_parts, make_process, make_text, process_texts
from pipelines.data.mixture import Short
from pipelines.data.sources import open_source
from pipelines.host import errors
from pipelines.host.errors import UserError
from pipelines.host.files import SPLITS, lock_of
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import each_changed
from tests.train.test_full_disk import small_disk


def process_split(source="target", **changes):
    settings = {"train_sequences": 3000, "validation_sequences": 500, "seed": 1} | changes
    return {k: list(v) for k, v in process_texts(ProcessData(source, **settings)).items()}


@arrives("process", "train_sequences validation_sequences seed")
def test_process_corpus_is_seeded_and_has_the_promised_size():
    first, again, other = process_split(), process_split(), process_split(seed=2)
    assert first == again and first["train"] != other["train"]
    assert (len(first["train"]), len(first["validation"])) == (3000, 500)
    symbols = PROCESSES["target"].symbols
    rows = torch.tensor([[symbols.index(c) for c in text] for text in first["train"][:50]])
    assert exact_log_probability(rows).isfinite().all()


def digits(base, length):
    """A process of independent digits, all equally likely."""
    return Process(
        symbols=tuple("0123456789"[:base]),
        separator=" ",
        row=length,
        sample=lambda n, rng: torch.randint(base, (n, length), generator=rng),
        log_probability=lambda rows: torch.full((len(rows),), -length * log(base)),
    )


@rejects(
    "build.process_texts: not in left_out)«→; left_out = set()»", "only the first draw is checked"
)
def test_no_held_out_sequence_occurs_in_training_and_all_others_do(monkeypatch):
    """Each of 4096 would come about ten times, also in each half of the draws."""
    monkeypatch.setitem(PROCESSES, "digits", digits(8, 4))
    texts = process_split("digits", train_sequences=40_000, validation_sequences=30)
    held_out = set(texts["validation"])
    assert 25 < len(held_out) <= 30 and not held_out & set(texts["train"])
    assert len(set(texts["train"])) > 4096 - 30 - 5


@arrives("process", "source")
def test_a_process_of_few_sequences_keeps_its_distribution(monkeypatch):
    """A coin, twice: leaving out what is held out would leave nothing to train on."""
    monkeypatch.setitem(PROCESSES, "coins", digits(2, 2))
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


@arrives("text", "source parts validation_share seed")
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


@arrives("text", "deduplicate")
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
    assert "x left out: 0 duplicates, 3 empty documents" in capsys.readouterr().out
    assert sum(map(len, documents_of(target).values())) == 120


def small(patch):
    """Small pieces of everything: a file is a group of several segments."""
    patch.setattr(corpus, "PART_BYTES", 200)
    patch.setattr(sources, "GROUP_BYTES", 1000)
    patch.setattr(segments, "SEGMENT_BYTES", 300)
    patch.setattr(mixture, "PARTITION_DOCUMENTS", 10)
    patch.setattr(mixture, "BLOCK_DOCUMENTS", 37)
    patch.setattr(stage, "FIRST_BYTES", 100)


@pytest.fixture
def small_parts(monkeypatch):
    small(monkeypatch)


def mixed_sources(folder):
    """Three parts, of which one is read by `datasets`, with duplicates within and among them."""
    write_lines(folder / "a", [f"a document {i % 90}" for i in range(120)])
    write_lines(folder / "b", ["a document 7"] + [f"b {i}" * 5 for i in range(70)])
    write_lines(folder / "c", [f"c text {i}" for i in range(300)])
    data = text_data(folder / "a", folder / "b", weights=[1.0, 2.0])
    data.parts["c"] = Hub(dataset="json", data_files=[str(folder / "c/*.jsonl")], weight=1.5)
    return data


@rejects('build.specification: data), «→"deduplicate": None,»', "deduplication left out of the key")
def test_exactly_what_decides_a_corpus_tells_unfinished_work_apart(monkeypatch):
    """Each setting, changed alone; files are known by what they are, not by how they were chosen;
    and of equal parts the order, by which they take turns.
    """
    parts = {"a": Files(root="a", pattern="*"), "b": Hub("hub", "json"), "c": Distributions()}
    data = TextData(parts=parts, validation_share=0.5)
    known, own = stage.specification(data), ("vocab_size", "tokenizer", "end_of_text")
    others = dict(each_changed(data))
    assert len(others) == 8 + 7 + 8 + 6
    for key, other in others.items():
        same = key in own or key.endswith((".pattern", ".exclude"))
        assert (stage.specification(other) == known) == same, key
    turned = replace(data, parts=dict(reversed(parts.items())))
    assert stage.specification(turned) != known
    monkeypatch.setattr(stage, "code_version", {"data": "another"}.__getitem__)
    by_code = stage.specification(data)
    monkeypatch.setattr(stage.pa, "__version__", "9.9")
    assert len({known, by_code, stage.specification(data)}) == 3


@rejects("Stream.groups: «self.name,→»", "a part's documents read as another part's")
def test_two_parts_of_the_same_files_are_two_texts(tmp_path):
    row = '{"a": "first %02d", "b": "other %02d"}\n'
    (tmp_path / "texts.jsonl").write_text("".join(row % (i, i) for i in range(40)))
    data = text_data(tmp_path, tmp_path)
    for name, part in data.parts.items():
        part.text_field = name
    make_text("x", data, tmp_path / "x")
    kept = [
        (identity[:2], text)
        for split in documents_of(tmp_path / "x").values()
        for identity, text in split
    ]
    expected = [("a/", b"first %02d"), ("b/", b"other %02d")]
    assert sorted(kept) == sorted((name, text % i) for name, text in expected for i in range(40))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Killed(BaseException):
    pass


def killed_after(monkeypatch, count, data, target):
    """Die when one file more than ``count`` has been written, with half of the next one there; what
    was finished, None if all is.
    """
    written = []
    inherited = corpus.write_file

    def write_file(path, content):
        written.append(path)
        if len(written) > count:
            path.with_name(path.name + ".partial").write_bytes(b"half")
            raise Killed
        inherited(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(segments, "write_file", write_file)
        patch.setattr(corpus, "write_file", write_file)
        try:
            make_text("x", data, target)
        except Killed:
            return finished(unfinished(target)[-1])
    return None


def unfinished(target):
    """Folders of unfinished work, the latest last."""
    folders = target.with_name("x.partial").iterdir()
    return sorted(folders, key=lambda path: path.stat().st_mtime_ns)


def finished(work):
    """Segments and parts, and when they were written."""
    paths = [*work.glob("*.json"), *work.glob("parts-*/*.parquet")]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_a_killed_stage_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path, small_parts, monkeypatch, capsys
):
    """Killed while it reads, and while it writes."""
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    make_text("x", data, target)
    right, said = contents(target), capsys.readouterr().out
    assert min(sum(name.startswith(split) for name in right) for split in SPLITS) > 3
    kept = {}
    for count in chain((3, 12, 20, 33, 1), repeat(8)):
        now = killed_after(monkeypatch, count, data, target)
        if now is None:
            break
        assert kept.items() <= now.items()  # nothing that is finished is written again
        kept = now
    assert 3 < sum(path.suffix == ".parquet" for path in kept) < len(right)
    assert contents(target) == right
    assert capsys.readouterr().out.endswith(said)  # the counts as well
    assert not target.with_name("x.partial").exists()


def simple(seed, deduplicate, max_bytes, weights, texts):
    """The corpus as one loop over documents, (part, text), makes it: kept ones, in order."""
    kept, seen, sizes = [], set(), [0] * len(texts)
    left = [iter(part) for part in texts]
    while max_bytes is None or sum(sizes) < max_bytes:
        due = min(range(len(sizes)), key=lambda i: sizes[i] / weights[i])
        if (text := next(left[due], None)) is None:
            break
        if text and not (deduplicate and text in seen):
            kept.append(("abc"[due], text.encode()))
            sizes[due] += len(text)
            seen.add(text)
    return kept


MIXTURES = st.lists(
    st.tuples(
        st.sampled_from([0.5, 1.0, 1.5, 3.0]),
        st.lists(st.text("xy", max_size=4), min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=3,
)


@rejects(
    "segments.read_group: «salt.copy()→sha256(task.part.encode())»", "documents kept for each part"
)
@rejects("mixture.find_copies: ((«→-»place", "the last of equal documents is kept")
@rejects("mixture.find_copies: «right→left»", "a part's first text in the part before")
@example([(1.0, [*map(str, range(20))])] * 2, True, None, 1)  # in several partitions
@example([(1.0, ["yy", "x"]), (1.0, ["x"])], True, None, 1)  # the first part's "x" is not reached
@example([(1.0, ["x", "y", "x"])], True, None, 1)
@given(MIXTURES, st.booleans(), st.none() | st.integers(1, 100), st.sampled_from([1, 3]))
@settings(max_examples=40)
def test_any_mixture_is_what_one_loop_over_its_documents_makes(
    tmp_path_factory, mixture, deduplicate, max_bytes, cores
):
    """For any number of workers, here threads: whichever ends first."""
    folder, weights = tmp_path_factory.mktemp("mixture"), [weight for weight, _ in mixture]
    for name, (_, texts) in zip("abc", mixture, strict=False):
        for number in range(0, len(texts), 5):
            write_lines(folder / name / f"{number:02d}", texts[number : number + 5])
    roots = [folder / name for name in "abc"[: len(mixture)]]
    changes = {"deduplicate": deduplicate, "max_bytes": max_bytes, "validation_share": 1e-9}
    data = text_data(*roots, weights=weights, **changes)
    for part in data.parts.values():
        part.pattern = "**/*.jsonl"
    expected = simple(0, deduplicate, max_bytes, weights, [texts for _, texts in mixture])
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        patch.setattr(workers, "on_this_machine", threads)
        patch.setattr(stage, "check_mixture", lambda *_: None)
        _, made = make_parts("x", data, folder, cores)
    kept = [d for path in sorted(made.iterdir()) for d in documents(path)]
    assert [(identity[0], text) for identity, text in kept] == expected


@rejects("Stream.ended: «all→any»", "a part taken for ended with one of its groups")
def test_a_group_that_is_read_in_part_is_read_on_before_the_next_one_counts(tmp_path, monkeypatch):
    """The first file gives more text than its size lets think, at first copies alone, and the
    others, of which one ends, are read at the same time.
    """
    texts = {
        "a": ["the same text again"] * 100 + [f"of the first: {i:03d}" for i in range(30)],
        "b": ["of the second"],
        "c": ["of the third" * 200],
    }
    for name, content in texts.items():
        path = write_lines(tmp_path / "in", content) / "texts.jsonl"
        path.rename(path.with_name(f"{name}.jsonl"))
    plain = tmp_path / "in/a.jsonl"
    (tmp_path / "in/a.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert 4 * (tmp_path / "in/a.jsonl.gz").stat().st_size < 900
    data = text_data(tmp_path / "in", max_bytes=1000, validation_share=1e-9)
    data.parts["a"].pattern = "*.jsonl*"
    monkeypatch.setattr(sources, "GROUP_BYTES", 1)
    monkeypatch.setattr(stage, "check_mixture", lambda *_: None)
    _, made = make_parts("x", data, tmp_path)
    kept = [("a", text) for path in sorted(made.iterdir()) for _, text in documents(path)]
    assert kept == simple(0, True, 1000, [1.0], [[*chain.from_iterable(texts.values())]])


def threads(function, count, cores):
    return ThreadPoolExecutor(count), count, lambda task: [*function(task)]


@pytest.mark.parametrize(
    ("tasks", "slow"),
    [
        (["data.segments", "data.mixture", "data.__main__"], ["torch"]),
        (["tokenize.encode", "tokenize.__main__"], ["torch", "omegaconf"]),
    ],
)
def test_a_worker_process_starts_without_what_is_slow_to_import(tasks, slow):
    """It imports its task, and the main module of the stage."""
    line = "import sys, " + ", ".join(f"pipelines.{module}" for module in tasks)
    line += f"; sys.exit(bool({{*{slow}}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", line]).returncode == 0


def test_several_processes_make_the_same_corpus(tmp_path, monkeypatch):
    for number in range(5):
        write_lines(tmp_path / "in" / str(number), [f"{i % 70} of {number % 3}" for i in range(90)])
    data = text_data(tmp_path / "in")
    data.parts["a"].pattern = "**/*.jsonl"
    monkeypatch.setattr(sources, "GROUP_BYTES", 1)
    for name, cores in {"one": 1, "two": 2}.items():
        make_text(name, data, tmp_path / name, cores)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@contextmanager
def another(what, data, folder):
    """Something such that work begun before fits no more, undone at the end."""
    with pytest.MonkeyPatch.context() as patch:
        if what == "settings":
            patch.setattr(data, "seed", 1)
        elif what == "code":
            patch.setattr(stage, "code_version", lambda stage: "other")
        else:
            os.rename(folder / "a", folder / "a-before")
            write_lines(folder / "a", [f"another {i}" for i in range(80)])
        yield
    if what == "a":
        shutil.rmtree(folder / "a")
        os.rename(folder / "a-before", folder / "a")


@rejects("Stream.groups: «source.version→»", "text that has changed is not read again")
@pytest.mark.parametrize("what", ["settings", "code", "a"])
def test_work_that_fits_no_more_is_kept_and_taken_up_when_it_fits_again(
    tmp_path, small_parts, monkeypatch, what, capsys
):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    make_text("y", data, tmp_path / "y")
    before = killed_after(monkeypatch, 30, data, target)
    assert len(before) > 3
    with another(what, data, tmp_path):
        capsys.readouterr()
        killed_after(monkeypatch, 30, data, target)
        said = capsys.readouterr().out
        make_text("z", data, tmp_path / "z")
        if what != "a":  # a change of the files alone
            (work,) = {path.parent for path in before}
            kept = f"x: unfinished work of other settings or code is kept: {work}\n"
            assert said == kept
            make_text("x", data, target)
            assert contents(target) == contents(tmp_path / "z")
    assert before.items() <= killed_after(monkeypatch, 1, data, target).items()
    capsys.readouterr()
    make_text("x", data, target)
    assert "documents were read by an earlier try" in capsys.readouterr().out
    assert contents(target) == contents(tmp_path / "y")


def test_the_last_unfinished_works_are_kept(tmp_path, small_parts, monkeypatch, capsys):
    data, target, works = mixed_sources(tmp_path), tmp_path / "x", {}
    for seed in (0, 1, 0, 1, 2, 3, 0, 4):  # the last 0 is the oldest of three others
        data.seed = seed
        killed_after(monkeypatch, 1, data, target)
        works[seed] = unfinished(target)[-1]
    assert unfinished(target) == [works[seed] for seed in (2, 3, 0, 4)]
    assert capsys.readouterr().out.count("unfinished work of other settings") == 4  # not of a known


@pytest.mark.parametrize("kind", ["json", "hashes.npy", "train.parquet"])
def test_a_segment_that_is_not_whole_is_read_again(tmp_path, small_parts, monkeypatch, kind):
    data, target = mixed_sources(tmp_path), tmp_path / "x"
    segment = min(killed_after(monkeypatch, 60, data, target))  # its .json
    damaged = segment.with_suffix(f".{kind}")
    damaged.write_bytes(b"") if kind == "json" else damaged.unlink()
    assert segments.load_segment(segment) is None
    make_text("x", data, target)
    make_text("y", data, tmp_path / "y")
    assert contents(target) == contents(tmp_path / "y")


@rejects("Draft.write: «self.following.unlink(missing_ok=True)→pass»", "a stale segment taken up")
def test_what_follows_a_segment_that_is_read_again_is_read_again_too(tmp_path, small_parts):
    """It began where the segment that is no more had ended; a kill may come before its turn."""
    lines = write_lines(tmp_path / "in", [f"document {i}" for i in range(90)])
    (source,) = open_source("x", Files(root=str(lines), pattern="*")).groups()
    group = segments.Group(source, str(tmp_path / "group"), [])
    whole = [*segments.read_group(segments.Reading(group, "a", 800, 0, 0.5))]
    assert len(whole) == 3
    whole[1].file("json").unlink()
    (again,) = open_source("x", Files(root=str(lines), pattern="*")).groups()
    group = segments.Group(again, group.stem, [*segments.finished_segments(group.stem)])
    assert group.segments == whole[:1]
    second = next(segments.read_group(segments.Reading(group, "a", 50, 0, 0.5)))
    assert second.documents < whole[1].documents
    assert [*segments.finished_segments(group.stem)] == [whole[0], second]


@rejects('build.specification: «"exclude"→»', "what is excluded decides whether finished work fits")
@pytest.mark.parametrize("repair", ["exclude", "mend"])
def test_a_bad_file_mended_or_left_out_costs_nothing_that_is_finished(
    tmp_path, small_parts, monkeypatch, repair
):
    """As the message asks for."""
    write_lines(tmp_path / "b", [f"b {i}" for i in range(500)])
    write_lines(tmp_path / "a", [f"more {i}" for i in range(120)])
    (tmp_path / "a/z.jsonl").write_text("{")  # a group of its own
    data = text_data(tmp_path / "a", tmp_path / "b", weights=[2.0, 1.0])
    with pytest.raises(UserError, match=r"z\.jsonl:1"):
        make_text("x", data, tmp_path / "x")
    kept = finished(unfinished(tmp_path / "x")[0])
    assert len(kept) > 3
    if repair == "exclude":
        data.parts["a"].exclude = ["z.jsonl"]
    else:
        (tmp_path / "a/z.jsonl").write_text('{"text": "mended"}')
    write = segments.Draft.write
    with patch.object(segments.Draft, "write", autospec=True, side_effect=write) as written:
        make_text("x", data, tmp_path / "x")
    again = {Path(call.args[0].stem).name for call in written.mock_calls}
    assert bool(again) == (repair == "mend") and not again & {path.stem for path in kept}
    make_text("y", data, tmp_path / "y")
    assert contents(tmp_path / "x") == contents(tmp_path / "y")


@arrives("text", "max_bytes")
def test_a_part_that_runs_out_is_told(tmp_path, capsys):
    a = write_lines(tmp_path / "a", [f"{i:03d}" for i in range(100)])
    b = write_lines(tmp_path / "b", [f"b {i:03d}" for i in range(900)])
    make_text("x", text_data(a, b, weights=[2.0, 6.0], max_bytes=4000), tmp_path / "x")
    said = capsys.readouterr().out
    assert said.endswith("x part a ran out at 300 of 1,000 bytes, which ended the mixture\n")
    assert "x of a: 100 documents, 300 bytes (25.0%)" in said and "left out" not in said
    make_text("x", text_data(a, b, weights=[2.0, 6.0]), tmp_path / "x")
    said = capsys.readouterr().out
    assert said.endswith("x part a ran out at 300 bytes, which ended the mixture\n")
    make_text("x", text_data(a, max_bytes=400), tmp_path / "x")
    assert capsys.readouterr().out.endswith("x part a ran out at 300 of 400 bytes\n")
    make_text("x", text_data(a, b, weights=[1.0, 3.0], max_bytes=800), tmp_path / "x")
    assert "ran out" not in capsys.readouterr().out
    make_text("x", text_data(a), tmp_path / "x")
    said = capsys.readouterr().out
    assert "ran out" not in said and "of a" not in said


@pytest.mark.parametrize(
    ("names", "max_bytes", "total"),
    [(["a.txt"], None, 5), (["a.jsonl"], None, None), (["a.txt", "b.txt"], None, None),
     (["a.txt", "b.txt"], 4, 4)],
)  # fmt: skip
def test_the_bar_of_reading_has_an_end_where_the_size_of_the_text_is_known(
    tmp_path, monkeypatch, names, max_bytes, total
):
    totals, bar = {}, stage.TextBar
    monkeypatch.setattr(
        stage, "TextBar", lambda total, desc, **o: totals.update({desc: total}) or bar(total, **o)
    )
    root = write_lines(tmp_path / "in", ["a text"])
    data = text_data(*(root for _ in names), max_bytes=max_bytes)
    for name, part in zip(names, data.parts.values(), strict=True):
        part.pattern = name
    (root / "texts.jsonl").rename(root / "a.jsonl")
    for name in ("a.txt", "b.txt"):
        (root / name).write_text("12345")
    monkeypatch.setattr(stage, "check_mixture", lambda *_: None)
    make_parts("x", data, tmp_path)
    assert totals["x: reading"] == total


@pytest.mark.parametrize(
    ("weights", "max_bytes", "goals"),
    [
        ([1.0, 3.0], 800, [[200, 600], [250, 750], [312.5, 937.5]]),
        ([1.0, 3.0], None, [[25, 75], [50, 150], [100, 300]]),
        ([2.0], 100, [[100], [125], [156.25]]),
        ([2.0], None, [[inf]] * 3),
    ],
)
def test_more_is_read_while_the_mixture_cannot_be_told(monkeypatch, weights, max_bytes, goals):
    """By a quarter, or twice as much where a part ends the mixture."""
    asked, left = [], iter([2, 0, 0, 0])
    monkeypatch.setattr(stage, "FIRST_BYTES", 100)
    monkeypatch.setattr(stage, "find_duplicates", lambda *_: None)
    monkeypatch.setattr(stage, "read_more", lambda _, each, *__: asked.append(each) or next(left))
    monkeypatch.setattr(stage, "mix", Mock(side_effect=[Short, Short, "a mixture"]))
    data = text_data(*weights, weights=weights, max_bytes=max_bytes)
    assert stage.read_mixture(data, [], 1, None) == "a mixture"
    assert asked == [goals[0], *goals]


def test_all_segments_are_kept_and_counted(tmp_path, monkeypatch):
    groups = [segments.Group(None, "", []) for _ in range(2)]
    done = [(groups[0], 5), (groups[1], 6), (groups[0], 7)]
    pairs = [(Mock(group=group), Mock(bytes=size)) for group, size in done]
    monkeypatch.setattr(stage, "run_tasks", lambda *_: iter(pairs))
    bar = Mock()
    assert stage.read_more([], [], 1, bar) == 3
    assert [call.args for call in bar.update.mock_calls] == [(5,), (6,), (7,)]
    assert [group.bytes for group in groups] == [12, 6]


def test_a_part_is_full_where_its_bytes_reach_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PART_BYTES", 10)
    found = [segments.Segment(name, 0, 0, 0, True) for name in "abc"]
    waiting = mixture.Waiting(tmp_path, "train", found)
    made = [*waiting.add([0, 2, 2, 0], [5, 6, 7, 8], [4, 6, 11, 3])]
    made += [*waiting.add([1], [9], [8])]
    assert not waiting.open.size
    assert [part.target.name for part in made] == [f"train-{i:05d}.parquet" for i in range(3)]
    assert [part.bytes for part in made] == [10, 11, 11]
    assert [part.rows.tolist() for part in made] == [[5, 6], [7], [8, 9]]
    assert [part.which.tolist() for part in made] == [[0, 1], [0], [0, 1]]
    stems = [[path.name.partition(".")[0] for path in part.files] for part in made]
    assert stems == [["a", "c"], ["c"], ["a", "b"]]


@pytest.mark.parametrize("number", [ENOSPC, EMFILE])
def test_only_what_a_disk_refuses_is_an_error_of_the_users(tmp_path, monkeypatch, number):
    monkeypatch.setattr(stage, "make_parts", Mock(side_effect=OSError(number, "no")))
    expected = UserError if number == ENOSPC else OSError
    with pytest.raises(expected, match="no"):
        make_text("x", text_data(tmp_path), tmp_path / "x")


def test_one_process_at_a_time_makes_a_corpus(tmp_path, monkeypatch):
    inherited, lock = stage.make_parts, lock_of(tmp_path / "x")

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
    assert "documents were read by an earlier try" in capsys.readouterr().out


def test_a_full_disk_is_one_line_and_what_is_finished_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 200_000)
    noise = [os.urandom(5000).hex() for _ in range(400)]  # 4 MB, 2 of them on the disk
    data = text_data(write_lines(tmp_path / "in", noise))
    with small_disk(tmp_path / "disk", "1m") as disk:
        with pytest.raises(SystemExit):
            errors.run(lambda: make_text("x", data, disk / "x"))
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == (
            f"error: {disk / 'x.partial'}: No space left on device; what is finished is kept, and "
            "the same command continues"
        )
        assert len(finished(*unfinished(disk / "x"))) > 2


@pytest.mark.parametrize(
    ("texts", "changes", "words"),
    [
        ([], {}, r"data\.x\.parts: no text; empty documents: 0"),
        ([""], {}, r"data\.x\.parts: no text; empty documents: 1"),
        (["aa", "b"], {"validation_share": 1e-9}, r"data\.x\.validation_share: 1e-09 of 2 documents"
         " leaves the validation part empty; raise it"),
        (["a", "b"], {"validation_share": 0.999}, "leaves the train part empty; lower it"),
        (["a"], {}, "of 1 document leaves the validation part empty; cut it into several"),
    ],
)  # fmt: skip
def test_a_corpus_without_text_is_named(tmp_path, texts, changes, words):
    data = text_data(write_lines(tmp_path / "in", texts), **changes)
    with pytest.raises(UserError, match=words):
        make_parts("x", data, tmp_path)
