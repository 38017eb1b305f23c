"""Benchmarks from files of public repositories: the harness asks the same as of the hub's data."""

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.fetch import build as fetch, published
from pipelines.suite import benchmark_data
from pipelines.suite.sandbox import run as sandbox
from pipelines.suite.tasks import run_task
from tests.support.benchmark_files import lines_of, small_sizes, write_file, write_folder
from tests.support.benchmark_models import Scripted, entries, settings
from tests.support.mutants import rejects

PAPER = entries("paper")
# the sixteen files' folder, by default beside the repository
REAL = Path(os.environ.get("BENCHMARK_FILES", ROOT.parent / "shared/benchmarks"))


@pytest.fixture
def project(monkeypatch, tmp_path):
    """An empty project without a network, a folder `files` beside it."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "conf").symlink_to(ROOT / "conf")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(benchmark_data, "NO_HUB", ["no hub in reach: tests ask none"])
    return folder


@pytest.fixture
def files(project, monkeypatch):
    small_sizes(monkeypatch)
    return write_folder(project.parent / "files")


@pytest.fixture
def no_programs(monkeypatch):
    """No program is run; all fail."""
    monkeypatch.setattr(sandbox, "unavailable", lambda: None)
    verdict = type("Verdict", (), {"passed": False, "failure": "not run"})
    monkeypatch.setattr(sandbox, "run_programs", lambda pairs: [verdict for _ in pairs])


def result_of(name, **changes):
    """Of a task of the paper's suite."""
    return run_task(Scripted(), name, PAPER[name], settings(run_code=True, **changes)).result


def of_suite(folder, *names):
    """params.yaml of a suite of these tasks of the paper."""
    tasks = {name: {"task": PAPER[name].task} for name in names}
    text = yaml.safe_dump({"suite": {"tasks": tasks}}, sort_keys=False)
    (folder / "params.yaml").write_text(text)


@rejects("rows[:scored],", "rows,", "documents that give shots scored, too")
@rejects("len(rows) < size:", "len(rows) > size:", "a sample that is not called one")
@rejects("digest != file.sha256:", "not digest:", "any file called the published one")
@rejects(
    "notes=benchmark_data.notes(origins)",
    "notes=[]",
    "results that do not say how their data differ",
)
def test_what_a_result_has_to_say_of_its_data(project, files, capsys, monkeypatch):
    """The file of PIQA is the known one."""
    key = ("baber/piqa", None)
    known = published.CONVERSIONS[key]
    ((file, read),) = known.sources
    digest = sha256((files / file.name).read_bytes()).hexdigest()
    known = replace(known, sources=((replace(file, sha256=digest), read),))
    monkeypatch.setitem(published.CONVERSIONS, key, known)
    of_suite(project, "boolq", "nq", "race_high", "piqa")
    fetch.main([f"from={files}"])
    out = capsys.readouterr().out
    listing = json.loads((project / "data/benchmarks/fetched.json").read_text())
    notes = {
        "boolq": "passages without the titles that the hub's begin with",
        "nq": "shots from 8 documents of the validation part, which are not scored",
        "race_high": "a sample of 4 of 12 questions, mostly one of an article",
    }
    for name, expected in notes.items():
        result = result_of(name)
        (dataset,) = listing[PAPER[name].task]["datasets"]
        ((file, _),) = published.conversion(dataset["dataset"], dataset["name"]).sources
        sha = dataset["files"][0]["sha256"]
        other = f"{file.name} is not the file that {file.repository} published"
        assert result.notes == dataset["notes"] == [expected, other]
        assert result.sources == [f"{dataset['dataset']} from {file.name}, sha256 {sha}"]
        for words in (*result.notes, *result.sources):
            assert f"  {words}\n" in out
    assert result_of("nq").documents == 2
    assert result_of("piqa").notes == []
    assert result_of("piqa").sources == [
        "baber/piqa from mosaicml/llm-foundry at 8c8dd48, "
        f"scripts/eval/local_data/commonsense_reasoning/piqa.jsonl, sha256 {digest}"
    ]


PIQA = "llm_foundry/piqa.jsonl"


def changed(lines, **fields):
    return [*lines[:2], json.dumps(json.loads(lines[2]) | fields), *lines[3:]]


@rejects(" not sample)", " sample)", "a file that was cut short taken for whole")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:2], lines[2][:-9], *lines[3:]], "line 3: Invalid JSON"),
        (lambda lines: changed(lines, gold=-1), "line 3: gold -1, but 2 choices"),
        (lambda lines: changed(lines, gold="1"), "line 3: gold: Input should be a valid integer"),
        (lambda lines: changed(lines, query="To open,\n"), "line 3: does not begin with"),
        (lambda lines: changed(lines, extra=1), "line 3: extra: Unexpected keyword"),
        (lambda lines: lines[:-1], "validation: 3 documents, where the hub has 4"),
        (lambda lines: [*lines, lines[0]], "validation: 5 documents, where the hub has 4"),
    ],
)
def test_a_broken_file_is_named_and_nothing_is_written(project, files, capsys, change, message):
    write_file(files, PIQA, change(lines_of(PIQA)))
    of_suite(project, "piqa", "obqa")
    with pytest.raises(SystemExit) as stop:
        fetch.main([f"from={files}"])
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"piqa: {files / PIQA}: {message}") and len(err.splitlines()) == 1
    assert out.startswith("piqa: not fetched\nobqa: allenai/openbookqa, 4 documents\n")
    data = project / "data/benchmarks"
    folders = {path.name for path in data.iterdir() if path.suffix != ".lock"}
    assert folders == {"allenai--openbookqa", "fetched.json"}
    assert list(json.loads((data / "fetched.json").read_text())) == ["openbookqa"]


def test_a_file_that_broke_later_leaves_what_was_converted(project, files):
    of_suite(project, "piqa")
    fetch.main([f"from={files}"])
    before = result_of("piqa")
    write_file(files, PIQA, lines_of(PIQA)[:2])
    with pytest.raises(SystemExit):
        fetch.main([f"from={files}"])
    after = result_of("piqa")
    assert (after.value, after.sources) == (before.value, before.sources)
    write_file(files, PIQA, changed(lines_of(PIQA), query="Question: Another?\n"))
    fetch.main([f"from={files}"])
    assert result_of("piqa").sources != before.sources


def test_files_that_are_not_there_not_known_or_cannot_be_unpacked_are_named(
    project, files, capsys, monkeypatch
):
    (files / PIQA).unlink()
    (files / "llm_foundry/boolq.jsonl.gz").write_bytes(b"no gzip")
    monkeypatch.delitem(published.CONVERSIONS, ("openai/gsm8k", "main"))
    of_suite(project, "piqa", "gsm8k", "boolq")
    with pytest.raises(SystemExit):
        fetch.main([f"from={files}"])
    *others, boolq = capsys.readouterr().err.splitlines()
    assert others == [
        f"piqa: baber/piqa: {files / PIQA} is not there",
        "gsm8k: openai/gsm8k: no file is known that it can be made from",
    ]
    assert boolq.startswith(f"boolq: {files / 'llm_foundry/boolq.jsonl.gz'}: cannot be read")


@rejects(
    "path.exists() and", "False and", "data of the hub replaced by a sample", file="fetch/folder.py"
)
def test_what_came_from_the_hub_stays(project, files, capsys):
    of_suite(project, "piqa")
    fetch.main([f"from={files}"])
    (origin,) = (project / "data").rglob("origin.json")
    origin.write_text(json.dumps({"dataset": "baber/piqa", "name": None, "revision": "abc"}))
    (files / PIQA).unlink()
    capsys.readouterr()
    fetch.main([f"from={files}"])
    assert capsys.readouterr().out == "piqa: baber/piqa, 4 documents\n"
    assert result_of("piqa").sources == ["baber/piqa at abc"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["from=nowhere"], "from=nowhere: not a folder"),
        (["from=a", "from=b"], "from: 2 folders"),
    ],
)
def test_mistakes_on_the_command_line(project, words, message):
    of_suite(project, "piqa")
    with pytest.raises(UserError, match=message):
        fetch.main(words)


SIZES = {  # on the hub, or of the samples
    "human_eval_plus": 164, "mbpp": 500, "gsm8k": 1319, "mmlu": 14_042, "csqa": 1171,
    "hellaswag": 10_042, "winogrande": 1267, "obqa": 500, "arc_challenge": 1172, "arc_easy": 2376,
    "piqa": 1838, "race_high": 500, "race_middle": 494, "boolq": 3270, "nq": 3560, "tqa": 2950,
}  # fmt: skip


@pytest.mark.slow
def test_the_real_files(project, capsys, no_programs):
    """All sixteen are the files that were published, and every task runs on them."""
    if not REAL.is_dir():
        pytest.skip(f"the files of the benchmarks are not in {REAL} (BENCHMARK_FILES names it)")
    fetch.main(["suite=paper", f"from={REAL}"])
    assert "is not the file" not in capsys.readouterr().out
    listing = json.loads((project / "data/benchmarks/fetched.json").read_text())
    counts = {name: listing[spec.task]["documents"] for name, spec in PAPER.items()}
    assert counts == SIZES
    for name, spec in PAPER.items():
        result = result_of(name, limit=2)
        assert result.documents == (114 if name == "mmlu" else 2) and result.shots == spec.shots
