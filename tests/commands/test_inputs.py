"""Stage sources: a fingerprint changes with the files, and with nothing else."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest
import yaml

from pipelines import inputs
from pipelines.common import file_listing
from pipelines.common.file_listing import FileEntry, Fingerprint
from pipelines.config.data import Distributions, Files, Hub
from pipelines.host.errors import UserError
from tests.support.arrivals import arrives
from tests.support.mutants import rejects

FOLDER = {"source": "files", "root": "raw", "pattern": "*.txt", "exclude": ["left.txt"]}
BUILDER = {"source": "hub", "dataset": "json", "data_files": ["raw/*.jsonl"]}
LOCAL = {"source": "hub", "dataset": "raw"}
NOTE_CODE = inputs.note_code  # takes longer than all else that the stage does


def text(part, **more):
    return {"source": "text", "parts": {"p": part}, **more}


@pytest.fixture
def looked(tmp_path, monkeypatch):
    """Run the stage on data entries; the files it leaves of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputs, "note_code", lambda known: None)
    (tmp_path / "raw").mkdir()
    for name in ("a.txt", "left.txt", "b.jsonl"):
        (tmp_path / "raw" / name).write_text(name)
    (tmp_path / "tokenizer.json").write_text("{}")

    def run(**data):
        (tmp_path / "params.yaml").write_text(yaml.safe_dump({"data": data}))
        inputs.main.callback()
        files = sorted((tmp_path / "data/inputs").glob("*/*.json"))
        return {path.relative_to(tmp_path / "data/inputs").as_posix(): path for path in files}

    return run


@rejects("Fingerprint.add: «, entry.mtime_ns→»", "a file's time left out of its fingerprint")
@rejects("file_listing.by_content_if_small: «add_content→add»", "a copy taken for another text")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("part", "name"), [(FOLDER, "a.txt"), (BUILDER, "b.jsonl"), (LOCAL, "x")])
def test_what_becomes_of_a_file_is_seen(looked, part, name, large, tmp_path, monkeypatch):
    if large:
        monkeypatch.setattr(file_listing, "MAX_BYTES_READ", 1)
    path = looked(x=text(part))["x/text.json"]
    written, seen = path.stat().st_mtime_ns, [path.read_bytes()]
    looked(x=text(part), y=text(part))
    assert path.stat().st_mtime_ns == written  # equal content is not written again
    file = tmp_path / "raw" / name
    more = tmp_path / "raw" / f"more{file.suffix}"
    for step in (
        lambda: file.write_text(file.name[::-1]),  # as long as before
        lambda: os.utime(file, ns=(1, 1)),  # as in a clone: no change of a small part
        more.touch,
        more.unlink,
    ):
        step()
        looked(x=text(part))
        seen.append(path.read_bytes())
    assert seen[4] == seen[2] and (seen[2] != seen[1]) == large
    assert len(set(seen)) == 3 + large


@rejects("Fingerprint.add_content: «entry.name,→» file_digest", "files that exchange their names")
def test_each_fact_of_a_file_changes_its_fingerprint(tmp_path):
    for name, content in {"a": "1", "b": "2"}.items():
        (tmp_path / name).write_text(content)
    entry = FileEntry("a", tmp_path / "a", 1, 2)
    facts = {"name": "b", "size": 3, "mtime_ns": 4}
    entries = [entry, *(replace(entry, **{fact: value}) for fact, value in facts.items())]
    assert len({Fingerprint([each]).hex() for each in entries}) == 4
    found = []
    for each in (entry, replace(entry, name="b"), replace(entry, path=tmp_path / "b")):
        found.append(Fingerprint())
        found[-1].add_content(each)
    assert len({fingerprint.hex() for fingerprint in found}) == 3


@arrives("files", "root pattern exclude")
@arrives("distributions", "pins pattern leave_out exclude")
@arrives("hub", "dataset data_files")
def test_the_files_looked_at_are_those_that_a_part_names(monkeypatch):
    listed = Mock()
    for name in ("Folder", "PinnedFiles", "local_files"):
        monkeypatch.setattr(inputs, name, getattr(listed, name))
    common = {"pattern": "*.x", "exclude": ["e"]}
    for part in (
        Files(root="raw", **common),
        Distributions(pins="pins.txt", leave_out=["left"], **common),
        Hub(dataset="json", data_files=["a"]),
    ):
        inputs.part_files("key", asdict(part))
    listed.Folder.assert_called_once_with("key", "raw", "*.x", ["e"])
    listed.PinnedFiles.assert_called_once_with("key", "pins.txt", leave_out=["left"], **common)
    listed.local_files.assert_called_once_with("json", ["a"])


@pytest.mark.parametrize("limit", [{"MAX_BYTES_READ": 11}, {"MAX_FILES_READ": 1}])
def test_no_file_of_a_large_part_is_opened(looked, limit, tmp_path, monkeypatch):
    (tmp_path / "raw/c.txt").write_text("c.txt c")
    monkeypatch.setattr(Fingerprint, "add_content", None)
    for name, value in limit.items():
        monkeypatch.setattr(file_listing, name, value)
    path = looked(x=text(FOLDER))["x/text.json"]
    assert (json.loads(path.read_bytes())["p"]["files"]) == 2
    monkeypatch.setattr(file_listing, name, value + 1)
    with pytest.raises(TypeError, match="not callable"):
        file_listing.by_content_if_small(inputs.part_files("x", FOLDER))


def test_the_content_of_a_tokenizer_is_seen_and_it_concerns_no_text(looked, tmp_path):
    seen = []
    for content in ("{}", "[]"):
        (tmp_path / "tokenizer.json").write_text(content)
        found = looked(x=text(FOLDER, tokenizer="tokenizer.json"))
        seen.append([found[f"x/{name}.json"].read_bytes() for name in ("text", "tokenizer")])
    assert seen[0][0] == seen[1][0] and seen[0][1] != seen[1][1]


def test_a_process_and_a_hub_have_nothing_to_look_at(looked):
    part = vars(Hub(dataset="someone/something"))
    found = looked(target={"source": "target", "seed": 0}, hub=text(part))
    assert json.loads(found["hub/text.json"].read_bytes()) == {"p": None}
    assert json.loads(found["target/text.json"].read_bytes()) == {}


def test_entries_that_are_gone_leave_no_file(looked):
    assert len(looked(x=text(FOLDER), y=text(FOLDER))) == 4
    assert set(looked(y=text(FOLDER))) == {"y/text.json", "y/tokenizer.json"}


@pytest.mark.parametrize("loss", ["raw", "raw/a.txt", "tokenizer.json"])
def test_what_was_made_stays_when_its_source_is_gone(looked, tmp_path, capsys, loss):
    data = text(FOLDER, tokenizer="tokenizer.json")
    before = {name: path.read_bytes() for name, path in looked(x=data).items()}
    (tmp_path / loss).rename(tmp_path / "elsewhere")
    after = {name: path.read_bytes() for name, path in looked(x=data).items()}
    assert after == before
    assert capsys.readouterr().out.startswith("data.x.")


@pytest.mark.parametrize("entry", [None, 3, {"source": "text"}, text(None), text({"source": "fil"}),
                                   text({**FOLDER, "root": "nowhere"}),
                                   text({**FOLDER, "pattern": "**x"})])  # fmt: skip
def test_what_is_wrong_with_an_entry_is_left_to_its_stage(looked, entry):
    assert set(looked(x=entry)) == {"x/text.json", "x/tokenizer.json"}


def test_changed_code_is_named_with_the_stages_that_run_again(
    looked, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(inputs, "note_code", NOTE_CODE)
    looked(x=text(FOLDER))
    copies = [tmp_path / "data/inputs/code/ftmodel/model" / name for name in ("a.py", "latent.py")]
    copies[0].write_text("")  # of a file that is gone
    copies[1].write_text("an older version")
    looked(x=text(FOLDER))
    said = capsys.readouterr().out
    assert said.splitlines()[-3].endswith("this runs again: train")
    assert "  ftmodel/model/a.py: is gone\n  ftmodel/model/latent.py: `an older version` is" in said
    for i in range(8):
        (copies[0].parent / f"b{i}.py").write_text("")
    looked(x=text(FOLDER))
    said = capsys.readouterr().out
    named = "\n".join(f"  ftmodel/model/b{i}.py: is gone" for i in range(6))
    assert said.endswith(f"{named}\n  and 2 more files\n")


def test_little_is_imported_at_every_dvc_repro():
    code = "import pipelines.inputs, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "pyarrow", "datasets", "lightning", "omegaconf"}
    assert not heavy & set(done.stdout.split())


def test_a_mistake_in_the_suite_ends_the_stage_before_it_notes_anything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("data: {x: {}}\nsuite: {tasks: {a: {}}}")
    with pytest.raises(UserError, match=r"suite\.tasks: every benchmark needs a `task`"):
        inputs.main.callback()
    assert not (tmp_path / "data").exists()
