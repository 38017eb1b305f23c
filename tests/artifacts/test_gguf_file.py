"""Weights of a GGUF file beside those that transformers reads from it."""

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quantize
from transformers import AutoModelForCausalLM

from ftmodel.conversion.llama import decoder_of
from pipelines.artifacts import llama_files
from pipelines.host.errors import UserError
from tests.support.gguf_files import export
from tests.support.mutants import rejects
from tests.support.tokenizers import llama_3

FLOAT, Q8_0 = GGMLQuantizationType.F32, GGMLQuantizationType.Q8_0
SHAPE = dict(d_model=64, ffn_width=96, n_heads=4, n_kv_heads=2)


def rewritten(source, target, family="llama", dtype=FLOAT, more=(), scaling=None, chat=False):
    """Another file of the same tensors, its matrices in ``dtype``, and ``more`` by name."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, family)
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            kind, *rest = field.types
            name = name.replace("llama.", f"{family}.")
            writer.add_key_value(name, field.contents(), kind, *rest[:1])
    if scaling:
        writer.add_string(f"{family}.rope.scaling.type", scaling)
    if chat:
        writer.add_chat_template("{{ messages }}")
        writer.add_eot_token_id(7)
    for tensor in reader.tensors:
        kind = dtype if tensor.data.ndim == 2 else FLOAT
        writer.add_tensor(tensor.name, quantize(tensor.data, kind), raw_dtype=kind)
    for name, weight in dict(more).items():
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def vectors(rng, **widths):
    """Biases or norms of two layers."""
    return {
        f"blk.{i}.attn_{name}": torch.randn(width, generator=rng)
        for i in range(2)
        for name, width in widths.items()
    }


FAMILIES = {  # what our own files have not
    "llama": {},
    "qwen2": {"q.bias": 64, "k.bias": 32, "v.bias": 32},
    "qwen3": {"q_norm.weight": 128, "k_norm.weight": 128},
}

CASES = [
    ("llama", FLOAT, True), ("llama", Q8_0, False), ("qwen2", FLOAT, False), ("qwen3", Q8_0, True)
]  # fmt: skip


@rejects("GgufWeights.__getitem__: «heads is None→True»", "channels in GGUF's order")
@pytest.mark.parametrize(("family", "dtype", "tied"), CASES)
def test_transformers_reads_the_same_numbers(make_model, tmp_path, rng, family, dtype, tied):
    width = 128 if family == "qwen3" else None  # transformers reads no other from such a file
    export(make_model, tmp_path / "a.gguf", tied=tied, n_layers=2, head_width=width, **SHAPE)
    more = vectors(rng, **FAMILIES[family])
    path = rewritten(tmp_path / "a.gguf", tmp_path / "b.gguf", family, dtype, more)
    config, weights, _ = llama_files.read_gguf(path)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    expected = theirs.state_dict()
    if tied:
        del expected["lm_head.weight"]
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name
    tokens = torch.randint(300, (2, 8), generator=rng)
    model = decoder_of(config, weights)
    logits = theirs(tokens).logits
    assert (model.logits(model(tokens).hidden) - logits).abs().max() < 1e-4 * logits.std()


@pytest.fixture
def ours(make_model, tmp_path):
    export(make_model, tmp_path / "a.gguf", n_layers=2, **SHAPE)
    return tmp_path / "a.gguf"


@rejects(
    "llama_files.nothing_beside: yield «Path(folder)→path.parent»", "a foreign tokenizer.json read"
)
@pytest.mark.parametrize("code", [False, True])
def test_nothing_beside_a_file_is_read_and_no_code_is_run(ours, tmp_path, monkeypatch, code):
    """transformers would read tokenizer.json there, and offer to run code that settings name."""
    monkeypatch.chdir(tmp_path)
    expected, asked = llama_files.gguf_tokenizer(ours).get_vocab(), []
    llama_3().save("tokenizer.json")
    for name in ("Tokenizer", "Config") if code else ():
        settings = {"model_type": "llama", "auto_map": {f"Auto{name}": "hostile.Hostile"}}
        (tmp_path / f"{name.lower()}_config.json").write_text(json.dumps(settings))
        (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "hostile.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    monkeypatch.setattr("builtins.input", lambda *_: asked.append("run it?") or "y")
    with suppress(UserError):  # by which a foreign class ends
        config, weights, tokenizer = llama_files.read_gguf(ours)
    assert not asked and not Path("ran").exists()
    assert tokenizer.get_vocab() == expected
    decoder_of(config, weights)


@rejects("GgufWeights.__init__: tensors«→ if t.name in theirs»}", "unknown GGUF tensors left out")
def test_a_tensor_that_transformers_leaves_out_is_refused(ours, tmp_path):
    """Llama 3.1's files slow RoPE down by one."""
    more = {"rope_freqs.weight": torch.full((8,), 8.0)}
    config, weights, _ = llama_files.read_gguf(rewritten(ours, tmp_path / "b.gguf", more=more))
    with pytest.raises(ValueError, match=r"^rope_freqs\.weight: unknown$"):
        decoder_of(config, weights)


def test_a_rope_that_transformers_does_not_read_is_refused(ours, tmp_path):
    llama_files.read_gguf(rewritten(ours, tmp_path / "b.gguf", scaling="none"))
    path = rewritten(ours, tmp_path / "c.gguf", scaling="linear")
    with pytest.raises(UserError, match=r"c\.gguf: .*llama\.rope\.scaling\.type"):
        llama_files.read_gguf(path)


def test_how_a_model_chats_is_known(ours, tmp_path):
    template, (end,) = llama_files.chat_settings(ours)
    assert not template
    chats = rewritten(ours, tmp_path / "b.gguf", chat=True)
    assert llama_files.chat_settings(chats) == (True, sorted([7, end]))


def test_numbers_of_a_type_that_gguf_does_not_read_are_one_line(ours):
    _, weights, _ = llama_files.read_gguf(ours)
    weights.tensors["a.weight"] = SimpleNamespace(data=None, tensor_type=GGMLQuantizationType.I8)
    with pytest.raises(UserError, match=r"a\.gguf: not readable as GGUF \(.*I8"):
        weights["a.weight"]


@pytest.mark.parametrize("kept", [0, 1000, -1000])
def test_a_file_that_ends_early_is_one_line(ours, kept):
    ours.write_bytes(ours.read_bytes()[:kept])
    with pytest.raises(UserError, match="not readable as GGUF") as caught:
        llama_files.read_gguf(ours)
    assert "\n" not in str(caught.value)
