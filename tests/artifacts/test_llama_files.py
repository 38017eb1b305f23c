"""Files of a Llama: read whole, or what is wrong with them is named."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from pipelines.artifacts import llama_files
from pipelines.artifacts.llama_files import (
    ADAPTER,
    CONFIG,
    INDEX,
    TOKENIZER,
    WEIGHTS,
    Llama,
    chat_settings,
    model_files,
    read_llama,
)
from pipelines.host.errors import UserError
from tests.support.mutants import rejects
from tests.support.tokenizers import gpt_2

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000\n"
TENSORS = {"a": torch.arange(3.0), "b": torch.ones(2, 2)}
PARTS = {"a": "model-2.safetensors", "b": "model-1.safetensors"}


@pytest.fixture
def whole(tmp_path):
    """A folder whose weights are in one file."""
    (tmp_path / CONFIG).write_text('{"width": 3}')
    gpt_2().save(str(tmp_path / TOKENIZER))
    save_file(TENSORS, tmp_path / WEIGHTS)
    return tmp_path


@pytest.fixture
def divided(whole):
    """A folder whose weights are in two files."""
    (whole / WEIGHTS).unlink()
    for name, file in PARTS.items():
        save_file({name: TENSORS[name]}, whole / file)
    (whole / INDEX).write_text(json.dumps({"weight_map": PARTS}))
    return whole


def check(found):
    assert found.tokenizer.to_str() == gpt_2().to_str()
    assert found.config["width"] == 3 and found.weights.keys() == TENSORS.keys()
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in TENSORS.items())


def test_a_folder_is_read_but_no_code_or_pickle_in_it(whole, monkeypatch):
    monkeypatch.chdir(whole)
    (whole / "hostile.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    (whole / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    (whole / CONFIG).write_text('{"width": 3, "auto_map": {"AutoConfig": "hostile.Hostile"}}')
    assert model_files(whole) == [whole / CONFIG, whole / WEIGHTS]
    check(read_llama(whole))
    assert not (whole / "ran").exists()


def test_weights_in_several_files_are_read(divided):
    names = [CONFIG, "model-1.safetensors", "model-2.safetensors"]
    assert model_files(divided) == [divided / name for name in names]
    check(read_llama(divided))


@rejects(
    "llama_files.weight_files: «not (folder / WEIGHTS).exists() and→»",
    "leftover shards read",
    case="shards",
)
@pytest.mark.parametrize("shards", [True, False], ids=["shards", "index alone"])
def test_a_leftover_index_changes_nothing_and_that_is_said(divided, capsys, shards):
    """transformers takes the single file, too."""
    save_file({name: tensor + 1 for name, tensor in TENSORS.items()}, divided / WEIGHTS)
    for file in () if shards else PARTS.values():
        (divided / file).unlink()
    assert model_files(divided) == [divided / CONFIG, divided / WEIGHTS]
    found = read_llama(divided)
    assert all(found.weights[name].equal(tensor + 1) for name, tensor in TENSORS.items())
    said = "model.safetensors is read, as by transformers; model.safetensors.index.json and its fil"
    assert said in capsys.readouterr().out


@rejects("llama_files.read_llama: (other := «→{} and »", "shards of two models mixed")
@pytest.mark.parametrize(
    ("tensors", "words"), [(["a", "b"], "b is left over"), ([], "a is missing")]
)
def test_a_shard_holds_what_the_index_says(divided, tensors, words):
    save_file({name: TENSORS[name] + 1 for name in tensors}, divided / PARTS["a"])
    with pytest.raises(UserError, match=rf"model-2\.safetensors: {words}, by {INDEX}"):
        read_llama(divided)


def test_a_gguf_file_is_read_as_such(tmp_path, monkeypatch):
    path = tmp_path / "a.gguf"
    with pytest.raises(UserError, match=r"a\.gguf is missing$"):
        read_llama(path)
    path.write_bytes(POINTER)
    with pytest.raises(UserError, match=r"a\.gguf: a pointer of Git LFS"):
        read_llama(path)
    path.write_bytes(b"")
    monkeypatch.setattr(llama_files, "read_gguf", lambda read: ({"file": read.name}, TENSORS, None))
    assert model_files(path) == [path]
    assert read_llama(path) == Llama({"file": "a.gguf"}, TENSORS, None)


def truncated(folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-4])


def strange_numbers(folder):
    """Of a type that safetensors knows and torch does not."""
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"F4" ', 1))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (shutil.rmtree, r"neither a folder nor a \.gguf file$"),
        (lambda folder: (folder / CONFIG).unlink(), r"/config\.json is missing$"),
        (lambda folder: (folder / TOKENIZER).unlink(), r"/tokenizer\.json is missing: "),
        (lambda folder: (folder / ADAPTER).touch(), r"/adapter_config\.json: adapters are"),
        (lambda folder: (folder / WEIGHTS).write_bytes(POINTER),
         r"/model\.safetensors: a pointer of Git LFS, .*; `git lfs pull` fetches that$"),
        (lambda folder: (folder / TOKENIZER).write_bytes(b"/annex/objects/MD5-s9--ab\n"),
         r"/tokenizer\.json: a pointer of git-annex, .*; `git annex get` fetches that$"),
        (lambda folder: (folder / CONFIG).write_text("[]"), r"/config\.json: not a mapping$"),
        (lambda folder: (folder / CONFIG).write_text("{"), r"/config\.json: not JSON"),
        (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
         r"/model\.safetensors is missing; weights must be safetensors or GGUF files$"),
        (truncated, r"/model\.safetensors: not readable as safetensors"),
        (strange_numbers, r"/model\.safetensors: not readable as safetensors"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder_is_named(whole, damage, words):
    damage(whole)
    with pytest.raises(UserError, match=f"^{whole}.*{words}"):
        read_llama(whole)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (False, [])),
        ({CONFIG: {"eos_token_id": 3}}, (False, [3])),
        ({CONFIG: {"eos_token_id": 3}, "generation_config.json": {"eos_token_id": [9, 3]}},
         (False, [3, 9])),
        ({"tokenizer_config.json": {"chat_template": "{{ messages }}"}}, (True, [])),
        ({"tokenizer_config.json": {}, "chat_template.jinja": ""}, (True, [])),
    ],
)  # fmt: skip
def test_how_a_model_chats_is_known(whole, files, expected):
    for name, content in files.items():
        (whole / name).write_text(json.dumps(content))
    assert chat_settings(whole) == expected


@pytest.mark.parametrize("names", [["b"], "b", {"a": 3}, {"a": "../b"}])
def test_an_index_names_files_of_its_own_folder(divided, names):
    (divided / INDEX).write_text(json.dumps({"weight_map": names}))
    with pytest.raises(UserError, match=f"{INDEX}: its weight_map names no files of this folder$"):
        read_llama(divided)


def test_a_file_that_the_index_names_and_that_is_not_there_is_named(divided):
    (divided / PARTS["a"]).unlink()
    with pytest.raises(UserError, match=r"/model-2\.safetensors is missing; weights must be"):
        read_llama(divided)
