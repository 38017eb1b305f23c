"""Stage tokenize: exact, the same on any number of cores, and no finished file made twice."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest

from ftmodel.synthetic import PROCESSES
from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.byte_tokenizer import CHARACTERS, ByteTokenizer
from pipelines.artifacts.tokens.shards import Shards
from pipelines.artifacts.tokens.token_file import TokenFile
from pipelines.cluster.workers import run_tasks
from pipelines.config.data import ProcessData, TextData
from pipelines.host.errors import UserError
from pipelines.tokenize import build as stage, encode, vocabulary
from pipelines.tokenize.build import tokenize
from pipelines.tokenize.encode import Task, tokenize_part
from pipelines.tokenize.vocabulary import text_tokenizer, train_bpe, training_sample
from tests.support.arrivals import arrives
from tests.support.corpora import write_corpus
from tests.support.mutants import rejects
from tests.support.settings import each_changed

END = "<|endoftext|>"
WORDS = ["def", "return", "x", "=", "größer", "日本", "\n", "    ", "(", ")", END, "\r\n", "12"]


def random_texts(seed, count):
    """Documents of words, one in three with bytes that are not UTF-8, one of them empty."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 80))).encode() for _ in range(count)]
    texts[::3] = [text[:9] + rng.randbytes(5) + text[9:] for text in texts[::3]]
    return [*texts, b""]


TRAIN = [random_texts(seed, 20) for seed in range(4)]
VALIDATION = [random_texts(9, 10)]


def text_data(**changes):
    return TextData(**({"validation_share": 0.1, "vocab_size": 300} | changes))


@pytest.fixture
def source(tmp_path):
    return write_corpus(tmp_path / "corpus", train=TRAIN, validation=VALIDATION)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mtimes(folder, pattern):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(pattern)}


def decoded(folder, split):
    shards = Shards(folder)
    tokens = ByteTokenizer(shards.tokenizer(), END)
    return [tokens.decode(ids[1:-1]) for ids in shards.documents(split)]


@rejects(
    "encode.text_chunks: «tokens.end_of_text,→» *ids«→, tokens.end_of_text»", "end of text after"
)
@rejects(
    'encode.text_chunks: , «size→sum(len(text.decode(errors="replace")) for _, text, _ in batch)»',
    "characters of a document counted for its bytes",
)
def test_shards_give_the_corpus_back_and_count_it(source, tmp_path):
    tokenize("x", text_data(), source, tmp_path / "x", cores=1)
    shards = Shards(tmp_path / "x")
    metadata = shards.metadata
    sizes = shards.token_bytes()
    assert metadata.vocab_size == shards.tokenizer().get_vocab_size() == len(sizes) == 300
    assert metadata.dtype == "uint16"
    assert sizes[metadata.end_of_text] == 0
    for split, parts in (("train", TRAIN), ("validation", VALIDATION)):
        texts = [text for part in parts for text in part]
        assert decoded(tmp_path / "x", split) == texts
        counts = metadata.splits[split]
        assert (counts.documents, counts.bytes) == (len(texts), sum(map(len, texts)))
        assert counts.tokens == sum(len(ids) - 1 for ids in shards.documents(split))
        assert counts.bytes == sum(int(sizes[ids].sum()) for ids in shards.documents(split))
        for part, file in zip(parts, shards.files[split], strict=True):  # one of each part
            assert file.shard.documents == len(part)
            assert file.read()[0] == metadata.end_of_text  # which starts a document
    assert not (tmp_path / "x.partial").exists()


def test_the_number_of_processes_changes_no_byte(source, tmp_path):
    for cores in (1, 3):
        tokenize("x", text_data(), source, tmp_path / f"x{cores}", cores)
    expected = files(tmp_path / "x1")
    token_files = {*(f"train-0000{i}.tokens" for i in range(4)), "validation-00000.tokens"}
    assert set(expected) == {"metadata.json", "overlap.json", "tokenizer.json", *token_files}
    assert files(tmp_path / "x3") == expected


def test_a_long_document_is_encoded_in_pieces_that_keep_all_cores_busy(tmp_path, monkeypatch):
    """The texts of a batch are shared out among them."""
    assert encode.ENCODED_BYTES // encode.PIECE_BYTES == 16
    monkeypatch.setattr(encode, "PIECE_BYTES", 50)
    monkeypatch.setattr(encode, "ENCODED_BYTES", 16 * 50)
    batches = []
    inherited = ByteTokenizer.encode_batch

    def encode_batch(self, texts):
        batches.append([len(text) for text in texts])
        return inherited(self, texts)

    texts = [b"a line of text\n" * 400, b"x" * 333, b"", bytes(range(256)) * 3]
    source = write_corpus(tmp_path / "corpus", train=[texts], validation=[[b"b"]])
    with monkeypatch.context() as patch:
        patch.setattr(ByteTokenizer, "encode_batch", encode_batch)
        tokenize("x", text_data(vocab_size=270), source, tmp_path / "x", cores=1)
    assert decoded(tmp_path / "x", "train") == texts
    assert max(map(sum, batches)) < 17 * 50 and min(map(len, batches[:7])) >= 16


@arrives("process", "source")
@pytest.mark.parametrize("name", ["target", "coin"])
def test_a_process_becomes_rows_of_its_symbols(tmp_path, name):
    process = PROCESSES[name]
    rows = [[(7 * i + j) % len(process.symbols) for j in range(process.row)] for i in range(5)]
    texts = [process.separator.join(process.symbols[i] for i in row).encode() for row in rows]
    source = write_corpus(tmp_path / "c", train=[texts[:2], texts[2:4]], validation=[texts[4:]])
    data = ProcessData(name, 4, 1)
    tokenize("x", data, source, tmp_path / "x", cores=1)
    shards = Shards(tmp_path / "x")
    assert [ids.tolist() for ids in shards.documents("train")] == rows[:4]
    assert shards.metadata.row_length == process.row
    assert shards.metadata.vocab_size == len(process.symbols)
    assert shards.metadata.end_of_text is None
    assert not (tmp_path / "x/overlap.json").exists()
    write_corpus(tmp_path / "c", train=[[*texts[:2], texts[0][:-1]]])
    words = rf"train-00000\.parquet: document 'train2' has {process.row - 1} symbols"
    with pytest.raises(UserError, match=words):
        tokenize("x", data, source, tmp_path / "x", cores=1)


@arrives("text", "tokenizer")
def test_a_taken_tokenizer_is_used(source, tmp_path):
    tokenize("x", text_data(), source, tmp_path / "x", cores=1)
    path = tmp_path / "x/tokenizer.json"
    data = text_data(vocab_size=None, tokenizer=str(path))
    tokenize("y", data, source, tmp_path / "y", cores=1)
    assert files(tmp_path / "y") == files(tmp_path / "x")
    path.write_text("{}")
    with pytest.raises(UserError, match=r"^data\.y\.tokenizer: .*x/tokenizer\.json: not a token"):
        tokenize("y", data, source, tmp_path / "y", cores=1)


@rejects(
    "build.tokenize: «sum(map(corpus.count_documents, of_split))→documents»",
    "documents that the tokenizer cannot spell not counted",
)
def test_documents_that_the_tokenizer_cannot_spell_are_left_out_and_counted(tmp_path, capsys):
    train = [[b"one\xff", b"two", b""], [b"\x00", b"three"]]
    source = write_corpus(tmp_path / "corpus", train=train, validation=[[b"four", b"\xfffive"]])
    spec = json.loads(train_bpe([b"one two three four"], 300, END).tokenizer.to_str())
    vocabulary = spec["model"]["vocab"]
    for byte in (0x00, 0xFF):
        vocabulary[f"nothing{byte}"] = vocabulary.pop(CHARACTERS[byte])
    (tmp_path / "taken.json").write_text(json.dumps(spec))
    data = text_data(vocab_size=None, tokenizer=str(tmp_path / "taken.json"))
    tokenize("text", data, source, tmp_path / "tokens", 1)
    splits = Shards(tmp_path / "tokens").metadata.splits
    counts = {name: (split.documents, split.left_out) for name, split in splits.items()}
    assert counts == {"train": (3, 2), "validation": (1, 1)}
    assert decoded(tmp_path / "tokens", "train") == [b"two", b"", b"three"]
    assert "documents; 2 left out" in capsys.readouterr().out


@rejects('build.write_overlap: "train")«→[::-1]»', "the training part in the held-out part")
def test_overlap_with_the_training_part_is_written_and_said(tmp_path, capsys):
    copied = b"a sentence that the training part and the held-out part have in common, word by word"
    train = [random_texts(1, 20), [b"1 " + copied + b" 2"]]
    source = write_corpus(tmp_path / "c", train=train, validation=[[b"z" * 40], [b"3 " + copied]])
    tokenize("x", text_data(vocab_size=257), source, tmp_path / "x", cores=1)
    overlap = json.loads((tmp_path / "x/overlap.json").read_text())
    tokens = {"tokens": 42 + len(copied), "tokens_overlapping": 1 + len(copied)}  # and a space
    assert overlap == {"n": 13, "documents": 2, "documents_with_overlap": 1, "whole": True} | tokens
    assert "x: 67.46 % of 126 held-out tokens, in 1 of 2 documents" in capsys.readouterr().out


@arrives("text", "end_of_text vocab_size")
def test_documents_begin_with_the_end_of_text_that_is_named(source, tmp_path, monkeypatch):
    """Whether its tokenizer is trained, was trained by a run that was killed, or is taken."""
    data = text_data(end_of_text="<end>", vocab_size=290)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(stage, "write_token_files", Mock(side_effect=Killed))
        tokenize("x", data, source, tmp_path / "x", cores=1)
    for name in ("x", "again", "taken"):
        tokenize(name, data, source, tmp_path / name, cores=1)
        shards, path = Shards(tmp_path / name), str(tmp_path / name / "tokenizer.json")
        end = shards.tokenizer().token_to_id("<end>")
        assert shards.metadata.end_of_text == end is not None
        assert {int(ids[0]) for ids in shards.documents("train")} == {end}
        assert shards.metadata.vocab_size == 290
        data = text_data(end_of_text="<end>", vocab_size=None, tokenizer=path)


def test_a_vocabulary_smaller_than_asked_is_said(tmp_path, capsys):
    parts = corpus.parts(write_corpus(tmp_path / "c", train=[[b"ab ab"]]), "train")
    text_tokenizer("data.x", text_data(vocab_size=259), parts, tmp_path / "a.json")
    assert "vocab_size" not in capsys.readouterr().out
    text_tokenizer("data.x", text_data(vocab_size=260), parts, tmp_path / "b.json")
    assert "data.x.vocab_size: 260, but the text gives 259\n" in capsys.readouterr().out


def test_a_tokenizer_is_trained_on_the_start_of_every_part(source, monkeypatch):
    parts = corpus.parts(source, "train")
    whole = b"".join(training_sample(parts))
    assert whole == b"".join(text for part in TRAIN for text in part)
    monkeypatch.setattr(vocabulary, "SAMPLE_BYTES", 403)
    sample = [*training_sample(parts)]
    assert all(sample)  # no document beyond the share is looked at
    joined = [b"".join(part) for part in TRAIN]
    assert b"".join(sample) == b"".join(
        t[:n] for t, n in zip(joined, (100, 101, 101, 101), strict=True)
    )


@rejects('build.tokenize: «parts["train"]→[*sha256s]»,', "a tokenizer trained on held-out text")
def test_a_tokenizer_is_not_trained_on_held_out_text(tmp_path):
    written = write_corpus(
        tmp_path / "corpus", train=[[b"some text of words"] * 9], validation=[[b"zzqqzzqq"] * 99]
    )
    tokenize("x", text_data(vocab_size=280), written, tmp_path / "tokens", cores=1)
    learned = Shards(tmp_path / "tokens").byte_tokenizer().bytes_of
    pairs = b"".join(token for token in learned if len(token) > 1)
    assert b"te" in pairs and b"z" not in pairs


class Killed(BaseException):
    pass


def killed_in(monkeypatch, number, data, source, target):
    """Die while the token file ``number`` is written."""
    started = []

    def part(task):
        started.append(task)
        if len(started) == number:
            task.target.with_name(task.target.name + ".partial").write_bytes(b"half")
            raise Killed
        return tokenize_part(task)

    with monkeypatch.context() as patch:
        patch.setattr(stage, "tokenize_part", part)
        try:
            tokenize("x", data, source, target, cores=1)
        except Killed:
            return [task.target.name for task in started[:-1]]
    return [task.target.name for task in started]


def test_a_killed_run_goes_on_where_it_was(source, tmp_path, monkeypatch, capsys):
    target = tmp_path / "x"
    tokenize("x", text_data(), source, tmp_path / "whole", cores=1)
    done = killed_in(monkeypatch, 3, text_data(), source, target)
    assert len(done) == 2
    assert not target.exists()
    (tmp_path / "x.partial/validation-00009.tokens").write_bytes(b"of a corpus with more parts")
    monkeypatch.setattr(vocabulary, "train_bpe", None)  # the tokenizer is kept too
    done += killed_in(monkeypatch, 2, text_data(), source, target)
    assert "x: 2 of 5 token files are there already" in capsys.readouterr().out
    done += killed_in(monkeypatch, -1, text_data(), source, target)
    assert len(done) == len(set(done)) == 5
    assert files(target) == files(tmp_path / "whole")


@pytest.mark.parametrize("change", ["data", "corpus part", "tokenizer", "damage", "code"])
def test_what_a_killed_run_left_of_other_data_is_made_anew(
    source, tmp_path, monkeypatch, capsys, change
):
    data, target = text_data(), tmp_path / "x"
    held_out = [*VALIDATION, [b"the last part, at which it is killed"]]
    write_corpus(source, validation=held_out)
    if change == "tokenizer":
        taken = tmp_path / "taken.json"
        train_bpe([b"ab ab"], 300, END).tokenizer.save(str(taken))
        data = text_data(vocab_size=None, tokenizer=str(taken))
    done = killed_in(monkeypatch, 6, data, source, target)
    again = {"corpus part": 2, "damage": 2}.get(change, 6)
    if change == "data":
        data = text_data(vocab_size=290)
    elif change == "corpus part":  # a held-out one, on which the tokenizer does not depend
        write_corpus(source, validation=[[*VALIDATION[0], b"more"], held_out[1]])
    elif change == "tokenizer":
        train_bpe([b"cd cd"], 300, END).tokenizer.save(str(taken))
    elif change == "damage":
        path = tmp_path / "x.partial" / done[1]
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    else:
        monkeypatch.setattr(stage, "code_version", lambda stage: "other")
    capsys.readouterr()
    assert len(killed_in(monkeypatch, -1, data, source, target)) == again
    said = capsys.readouterr().out
    assert ("x: code or data changed since the run that was killed" in said) == (again == 6)
    assert ("training a tokenizer" in said) == (change in ("data", "code"))
    tokenize("x", data, source, tmp_path / "whole", cores=1)
    assert files(target) == files(tmp_path / "whole")


@rejects('build.tokenize: for part in parts["train"]«→[:0]»', "tokens of a tokenizer of other text")
def test_files_of_a_killed_run_are_known_by_all_that_decides_tokens(source, tmp_path, monkeypatch):
    """Each setting, each part that a tokenizer is trained on, code and library, changed alone."""
    origins, trained = [], text_data()

    def note(name, folder, origin):
        origins.append(origin)
        raise Killed

    def ask(data=trained, source=source):
        with pytest.raises(Killed):
            tokenize("x", data, source, tmp_path / "x", cores=1)

    monkeypatch.setattr(stage, "drop_files_of_other_origin", note)
    for data in (trained, text_data(tokenizer="none"), ProcessData("target", 4, 1)):
        ask(data)
        for _, other in each_changed(data):
            ask(other)
    for number in range(len(TRAIN)):
        parts = [*TRAIN[:number], [b"other"], *TRAIN[number + 1 :]]
        ask(source=write_corpus(tmp_path / f"{number}", train=parts, validation=VALIDATION))
    monkeypatch.setattr(stage, "code_version", {"tokenize": "another"}.__getitem__)
    ask()
    monkeypatch.setattr(stage.tokenizers, "__version__", "9.9")
    ask()
    assert len({*origins}) == len(origins)


@rejects('build.tokenize: source«→ + code_version("tokenize")»)', "the code's version in the files")
def test_the_version_of_the_code_is_in_no_byte_of_what_it_makes(source, tmp_path, monkeypatch):
    """So that an edit that changes no token retrains nothing."""
    for version in ("first", "second"):
        monkeypatch.setattr(stage, "code_version", {"tokenize": version}.__getitem__)
        tokenize("x", text_data(), source, tmp_path / version, cores=1)
    assert files(tmp_path / "first") == files(tmp_path / "second")


def test_a_damaged_part_is_named_and_what_is_finished_is_kept(source, tmp_path, capsys):
    part = corpus.part_path(source, "validation", 0)
    whole = part.read_bytes()
    part.write_bytes(whole[:100])
    with pytest.raises(UserError, match=r"validation-00000\.parquet: not a part of a corpus"):
        tokenize("x", text_data(), source, tmp_path / "x", cores=1)
    part.write_bytes(whole)
    tokenize("x", text_data(), source, tmp_path / "x", cores=1)
    assert "x: 4 of 5 token files are there already" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [lambda ids: ids[:-1], lambda ids: [*ids, 0]])
def test_tokens_that_are_not_the_document_stop_the_stage(source, tmp_path, monkeypatch, wrong):
    inherited = ByteTokenizer.encode_batch
    monkeypatch.setattr(ByteTokenizer, "encode_batch", lambda *a: [*map(wrong, inherited(*a))])
    words = r"train-00000\.parquet: the tokens of document 'train0' are not its bytes"
    with pytest.raises(UserError, match=words):
        tokenize("x", text_data(), source, tmp_path / "x", cores=1)


@pytest.fixture
def tasks(source, tmp_path):
    tokenize("x", text_data(), source, tmp_path / "x", cores=1)
    return [
        Task(part, tmp_path / f"{part.stem}.tokens", tmp_path / "x/tokenizer.json", END, None,
             "uint16", "")
        for part in corpus.parts(source, "train")
    ]  # fmt: skip


class Deadly:
    """Kills the process that it is sent to."""

    def __reduce__(self):
        return exec, ("import os; os.kill(os.getpid(), 9)",)


def test_a_killed_worker_is_one_line(tasks):
    tasks[2] = replace(tasks[2], dtype=Deadly())
    with pytest.raises(UserError, match="a worker process was killed"):
        list(run_tasks(tokenize_part, tasks, 2))


KILLED_AFTER_ONE = """
import os, signal, sys
from pathlib import Path
from pipelines.tokenize import build as stage
from pipelines.config.data import TextData
source, target = map(Path, sys.argv[1:])
run_tasks = stage.run_tasks

def killed(*given):
    for done in run_tasks(*given):
        os.kill(os.getpid(), signal.SIGKILL)
        yield done

stage.run_tasks = killed
stage.tokenize("x", TextData(validation_share=0.1, vocab_size=300), source, target, 2)
"""


def test_sigkill_ends_the_workers_too_and_other_processes_may_go_on(tmp_path, capsys):
    """Of the stage, with two workers that have begun other parts, larger than the first one. Their
    output is closed once the last of them has gone.
    """
    large = [text for seed in range(10) for text in random_texts(seed, 100)]
    train = [random_texts(99, 3), *([*large, b"part %d" % i] for i in range(4))]
    source = write_corpus(tmp_path / "corpus", train=train, validation=VALIDATION)
    command = [sys.executable, "-c", KILLED_AFTER_ONE, str(source), str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not (tmp_path / "x").exists()
    kept = mtimes(tmp_path / "x.partial", "*.tokens")
    assert 1 <= len(kept) < 6
    tokenize("x", text_data(), source, tmp_path / "x", cores=3)
    assert f"x: {len(kept)} of 6 token files are there already" in capsys.readouterr().out
    assert kept.items() <= mtimes(tmp_path / "x", "*").items()
    tokenize("x", text_data(), source, tmp_path / "whole", cores=1)
    assert files(tmp_path / "x") == files(tmp_path / "whole")


def test_when_a_part_fails_those_under_way_are_finished(tmp_path, tasks):
    """The first one takes a while, and the second fails at once."""
    folder = write_corpus(tmp_path / "long", train=[[b"some words to encode\n" * 100_000]])
    tasks[0] = replace(tasks[0], part=corpus.part_path(folder, "train", 0))
    tasks[1] = replace(tasks[1], part=tmp_path / "nowhere.parquet")
    with pytest.raises(UserError, match="nowhere"):
        list(run_tasks(tokenize_part, tasks, 2))
    assert TokenFile(tasks[0].target).shard.bytes == 21 * 100_000
