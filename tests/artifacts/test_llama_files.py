"""Files of a Llama: read whole, or what is wrong with them is named."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from pipelines.artifacts import llama_files
from pipelines.artifacts.llama_files import (
    CONFIG,
    INDEX,
    TOKENIZER,
    WEIGHTS,
    Llama,
    model_files,
    read_llama,
)
from pipelines.host.errors import UserError
from tests.support.tokenizers import gpt_2

TENSORS = {"a": torch.arange(3.0), "b": torch.ones(2, 2)}
PARTS = {"a": "model-2.safetensors", "b": "model-1.safetensors"}


@pytest.fixture
def whole(tmp_path):
    """A folder whose weights are in one file."""
    (tmp_path / CONFIG).write_text('{"width": 3}')
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
    assert found.config == {"width": 3} and found.weights.keys() == TENSORS.keys()
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in TENSORS.items())


def test_a_folder_is_read_with_or_without_a_tokenizer(whole):
    assert model_files(whole) == [whole / CONFIG, whole / WEIGHTS]
    check(found := read_llama(whole))
    assert found.tokenizer is None
    gpt_2().save(str(whole / TOKENIZER))
    check(found := read_llama(whole))
    assert found.tokenizer.to_str() == gpt_2().to_str()


def test_weights_in_several_files_are_read(divided):
    names = [CONFIG, "model-1.safetensors", "model-2.safetensors"]
    assert model_files(divided) == [divided / name for name in names]
    check(read_llama(divided))


def test_a_gguf_file_is_read_as_such(tmp_path, monkeypatch):
    path = tmp_path / "a.gguf"
    with pytest.raises(UserError, match=r"a\.gguf: is missing$"):
        read_llama(path)
    path.touch()
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
        (lambda folder: (folder / CONFIG).unlink(), r"/config\.json: is missing$"),
        (lambda folder: (folder / CONFIG).write_text("[]"), r"/config\.json: not a mapping$"),
        (lambda folder: (folder / CONFIG).write_text("{"), r"/config\.json: not JSON"),
        (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
         r"/model\.safetensors: is missing; weights are read from safetensors"),
        (truncated, r"/model\.safetensors: not readable as safetensors"),
        (strange_numbers, r"/model\.safetensors: not readable as safetensors"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder_is_named(whole, damage, words):
    damage(whole)
    with pytest.raises(UserError, match=f"^{whole}.*{words}"):
        read_llama(whole)


@pytest.mark.parametrize("names", [["b"], "b", {"a": 3}, {"a": "../b"}])
def test_an_index_names_files_of_its_own_folder(whole, names):
    (whole / INDEX).write_text(json.dumps({"weight_map": names}))
    with pytest.raises(UserError, match=f"{INDEX}: its weight_map names no files of this folder$"):
        read_llama(whole)


def test_a_file_that_the_index_names_and_that_is_not_there_is_named(divided):
    (divided / PARTS["a"]).unlink()
    with pytest.raises(UserError, match=r"/model-2\.safetensors: is missing; weights are read"):
        read_llama(divided)
