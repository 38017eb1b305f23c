"""A GGUF file in the hands of llama.cpp itself, where NODE_LLAMA_CPP names the folder that
`npm install node-llama-cpp@3.22.1` was run in.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tests.support.gguf_files import AWKWARD, CONTEXT, PRE_TOKENIZERS, SHAPES, export
from tests.support.tokenizers import encode

SCRIPT = Path(__file__).parents[1] / "support/llama_cpp.mjs"
CLEANED = ("llama-bpe", "dbrx")  # by these names llama.cpp takes spaces out of what it decodes


@pytest.fixture
def in_llama_cpp():
    folder = os.environ.get("NODE_LLAMA_CPP")
    if not folder:
        pytest.skip("NODE_LLAMA_CPP names no folder with node-llama-cpp")
    if not shutil.which("node"):
        pytest.skip("no node here")
    if not Path(folder, "node_modules/node-llama-cpp/package.json").exists():
        pytest.skip(f"no node-llama-cpp in {folder}")

    def run(path, texts=(), prompts=(), count=0):
        asked = dict(folder=folder, model=str(path), texts=texts, prompts=prompts, count=count)
        done = subprocess.run(
            ["node", SCRIPT], input=json.dumps(asked), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@torch.no_grad()
def greedy(model, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        hidden = model(torch.tensor([tokens])).hidden
        tokens.append(model.logits(hidden)[0, -1].argmax().item())
    return tokens[len(prompt) :]


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_llama_cpp_goes_on_as_we_do(make_model, tmp_path, in_llama_cpp, changes):
    path = tmp_path / "model.gguf"
    model, tokens = export(make_model, path, **changes)
    texts = (b"a", b"def f(x", "日本語 9".encode())
    prompts = [[tokens.end_of_text, *encode(tokens, text)] for text in texts]
    found = in_llama_cpp(path, prompts=prompts, count=24)
    assert found["continued"] == [greedy(model, prompt, 24) for prompt in prompts]
    assert found["begin"] == tokens.end_of_text and found["prepends"]
    assert found["context"] == CONTEXT


@pytest.mark.parametrize("style", PRE_TOKENIZERS)
def test_the_tokenizer_of_llama_cpp_is_ours(make_model, tmp_path, in_llama_cpp, style):
    path = tmp_path / "model.gguf"
    _, tokens = export(make_model, path, style)
    texts = [*AWKWARD, "a  lost b"]
    found = in_llama_cpp(path, texts=texts)
    for text, ids, decoded in zip(texts, found["texts"], found["decoded"], strict=True):
        assert ids == encode(tokens, text.encode()), text
        if PRE_TOKENIZERS[style] not in CLEANED:
            assert decoded == text
