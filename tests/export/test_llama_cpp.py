"""A GGUF file in the hands of others: transformers, and llama.cpp itself."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gguf import GGUFReader, TokenType
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import pre_tokenizers as pre
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftmodel.conversion.llama import llama_config
from pipelines.artifacts.checkpoint import Manifest
from pipelines.export import llama_cpp
from pipelines.tokenize.vocabulary import byte_exact, train_bpe
from tests.support.tokenizers import END, LLAMA_3, STYLES, TEXT, byte_tokenizer, trained

CONTEXT = 48
SHAPES = [
    {},
    {"tied": False, "n_kv_heads": 1},
    {"norm_eps": 0.3, "rope_theta": 50.0, "n_kv_heads": 4},
]
AWKWARD = [
    "",
    " ",
    "a , b . it 's 'll ' x",
    "  two\n\n\n   three\t\tfour \r\n five   ",
    "1234567 12 3 ½ ٣٤ Ⅻ",
    "It's we'LL they'd I'VE",
    f"a{END}b <|im_start|> <tool> größer</s>[PAD3]",
    "Über größer naïve café 東京 → ∀x e\u0301 \u00a0 \u200b\ufeff 🎲👩‍👩‍👧",
    "def f(x):\n    return x + 1  # π\n\n\nclass A: pass",
    "\x00\x01\x7f ĠĊ Ċ",
]
LETTERS = "aZsStTdDéßπ日本語한가ไทयि0123456789½٣Ⅻ '’\".,;!?-_()<>|/\\\n\r\t\u00a0\u2003\u0301€∀🎲 "
PRE_TOKENIZERS = {
    "trained": "trillion",
    "gpt_2": "trillion",
    "llama_3": "llama-bpe",
    "qwen_2": "dbrx",
    "digits": "smollm",
    "qwen_2.5": "qwen2",
}


CLEANED = ("llama_3", "qwen_2")  # llama.cpp takes spaces out of what it decodes by these names
RANDOM = ["".join(random.Random(seed).choices(LETTERS, k=60)) for seed in range(40)]
BYTES = pre.ByteLevel(add_prefix_space=False)


def split(behavior="isolated", invert=False):
    pattern = Regex(LLAMA_3.replace("{1,3}", ""))
    cut = pre.Split(pattern, behavior, invert)
    return pre.Sequence([cut, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def exact(tokenizer):
    return byte_exact(json.loads(tokenizer.to_str()), END)


def tokenizer_of(style):
    if style == "digits":
        return exact(trained(pre.Sequence([pre.Digits(True), BYTES])))
    return exact(trained(split())) if style == "qwen_2.5" else byte_tokenizer(style)


def shards_of(tokens):
    return SimpleNamespace(
        metadata=SimpleNamespace(vocab_size=tokens.vocab_size, end_of_text=tokens.end_of_text),
        tokenizer=lambda: Tokenizer.from_str(tokens.tokenizer.to_str()),
    )


MANIFEST = Manifest(
    experiment="retrofit",
    run_name="baseline",
    run={"seed": 3, "data": "stdlib"},
    architecture={},
    vocab_size=0,
    data_hash="abc",
    spec_hash="def",
)


@pytest.fixture
def export(make_model, tmp_path):
    """Our model and its GGUF file, with the tokenizer of a style."""

    def write(style="trained", **changes):
        tokens = tokenizer_of(style)
        shape = dict(latent_bits=0, d_model=32, ffn_width=48, context=CONTEXT)
        model = make_model(**(shape | changes), vocab_size=tokens.vocab_size).eval()
        path = tmp_path / f"{style}.gguf"
        llama_cpp.write(
            path,
            model,
            llama_config(model.config, tokens.vocab_size),
            llama_cpp.vocabulary(shards_of(tokens)),
            llama_cpp.provenance(MANIFEST, 1_000_000_000_000),
        )
        return model, path, tokens

    return write


def ours(tokens, text):
    (ids,) = tokens.encode_batch([text.encode()])
    return ids


def read(path):
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.no_grad()
def test_transformers_computes_our_logits(export, changes):
    model, path, _ = export(**changes)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    tokens = torch.randint(300, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    expected = model.logits(model(tokens).hidden)
    assert expected.std() > 0.1, "logits this small would compare nothing"
    assert (theirs(tokens).logits - expected).abs().max() < 1e-4 * expected.std()
    assert theirs.config.max_position_embeddings == CONTEXT
    assert theirs.config.tie_word_embeddings == model.config.tied


@pytest.mark.parametrize("style", [style for style in PRE_TOKENIZERS if style != "digits"])
def test_the_tokenizer_of_transformers_is_ours(export, style):
    """But that of SmolLM, whose name transformers does not know; nor does it know an added token
    with spaces, and it decodes one with other letters than ASCII's as if it were ordinary.
    """
    _, path, tokens = export(style)
    theirs = AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name, split_special_tokens=True
    )
    for text in AWKWARD + [text.decode() for text in TEXT[:2]]:
        if "  lost" not in text:
            ids = theirs(text).input_ids
            assert ids == [tokens.end_of_text, *ours(tokens, text)], text
            assert "größer" in text or theirs.decode(ids[1:]) == text
    assert theirs.bos_token == theirs.eos_token == END


@pytest.mark.parametrize("style", PRE_TOKENIZERS)
def test_the_name_of_the_pattern_that_cuts_text(style):
    assert llama_cpp.vocabulary(shards_of(tokenizer_of(style))).pre == PRE_TOKENIZERS[style]


def test_entries_of_the_file(export):
    _, path, tokens = export("qwen_2", norm_eps=0.25, rope_theta=50.0)
    entries = read(path)
    general = {name[8:]: value for name, value in entries.items() if name.startswith("general.")}
    assert general["architecture"] == "llama" and general["file_type"] == 0
    assert general["name"] == "retrofit/baseline" and general["seed"] == 3
    assert general["data_hash"] == "abc" and general["spec_hash"] == "def"
    assert general["trained_tokens"] == 1_000_000_000_000
    assert general["git_revision"] == "not recorded"
    llama = {name[6:]: value for name, value in entries.items() if name.startswith("llama.")}
    assert llama["context_length"] == CONTEXT and llama["vocab_size"] == tokens.vocab_size
    assert llama["rope.freq_base"] == 50.0 and llama["attention.layer_norm_rms_epsilon"] == 0.25
    assert llama["attention.head_count"] == 4 and llama["attention.head_count_kv"] == 2
    assert llama["rope.dimension_count"] == llama["attention.key_length"] == 8
    assert entries["tokenizer.ggml.add_bos_token"] and not entries["tokenizer.ggml.add_eos_token"]
    assert entries["tokenizer.ggml.bos_token_id"] == tokens.end_of_text
    kinds = dict(
        zip(entries["tokenizer.ggml.tokens"], entries["tokenizer.ggml.token_type"], strict=True)
    )
    assert kinds[END] == kinds["<|im_start|>"] == TokenType.CONTROL
    assert kinds["<tool>"] == kinds["  lost"] == TokenType.USER_DEFINED
    assert kinds["Ġ"] == TokenType.NORMAL


def test_an_id_that_is_left_out_is_an_unused_token():
    spec = json.loads(STYLES["gpt_2"]().to_str())
    (end,) = spec["added_tokens"]
    last = end["id"]
    end["id"] = spec["model"]["vocab"][END] = last + 2
    tokens = byte_exact(spec, END)
    words = llama_cpp.vocabulary(shards_of(tokens))
    assert words.tokens[last : last + 3] == [f"[PAD{last}]", f"[PAD{last + 1}]", END]
    assert words.types[last : last + 2] == [TokenType.UNUSED] * 2


def whole_word():
    tokenizer = STYLES["gpt_2"]()
    tokenizer.add_tokens([AddedToken("word", single_word=True)])
    return tokenizer


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (whole_word, "^its tokenizer takes 'word' for .* whole word"),
        (
            lambda: trained(pre.Sequence([pre.Punctuation(), BYTES])),
            r"^llama.cpp has no name for .*Punctuation.* and then 's\|.*ignore_merges False$",
        ),
        (lambda: trained(split("contiguous")), "no name for .*Contiguous"),
        (lambda: trained(split(invert=True)), "no name for .*invert"),
        (lambda: trained(pre.ByteLevel(False, use_regex=False)), "not at all, ignore_merges False"),
        (lambda: trained(BYTES, ignore_merges=True), "ignore_merges True$"),
    ],
)
def test_a_tokenizer_that_llama_cpp_does_not_have_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        llama_cpp.vocabulary(shards_of(exact(make())))


def test_bytes_without_merges_are_refused():
    with pytest.raises(ValueError, match=r"^its tokenizer has no merges, and"):
        llama_cpp.vocabulary(shards_of(train_bpe([b"a"], 257, END)))


# llama.cpp itself


@pytest.fixture
def in_llama_cpp():
    """Runs tests/support/llama_cpp.mjs; NODE_LLAMA_CPP names the folder that
    `npm install node-llama-cpp@3.22.1` was run in.
    """
    folder = os.environ.get("NODE_LLAMA_CPP")
    if not folder:
        pytest.skip("NODE_LLAMA_CPP names no folder with node-llama-cpp")
    if not shutil.which("node"):
        pytest.skip("no node here")
    if not Path(folder, "node_modules/node-llama-cpp/package.json").exists():
        pytest.skip(f"no node-llama-cpp in {folder}")

    def run(path, texts=(), prompts=(), count=0):
        asked = dict(folder=folder, model=str(path), texts=texts, prompts=prompts, count=count)
        script = Path(__file__).parents[1] / "support/llama_cpp.mjs"
        done = subprocess.run(
            ["node", script], input=json.dumps(asked), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@torch.no_grad()
def greedy(model, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        hidden = model(torch.tensor([tokens])).hidden
        tokens.append(model.logits(hidden)[0, -1].argmax().item())
    return tokens[len(prompt) :]


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_llama_cpp_goes_on_as_we_do(export, in_llama_cpp, changes):
    model, path, tokens = export(**changes)
    prompts = [[tokens.end_of_text, *ours(tokens, text)] for text in ("a", "def f(x", "日本語 9")]
    found = in_llama_cpp(path, prompts=prompts, count=24)
    assert found["continued"] == [greedy(model, prompt, 24) for prompt in prompts]
    assert found["begin"] == tokens.end_of_text and found["prepends"]
    assert found["context"] == CONTEXT


@pytest.mark.parametrize("style", PRE_TOKENIZERS)
def test_the_tokenizer_of_llama_cpp_is_ours(export, in_llama_cpp, style):
    _, path, tokens = export(style)
    texts = [text.decode() for text in TEXT[:2]] + AWKWARD + RANDOM
    found = in_llama_cpp(path, texts=texts)
    for text, ids, decoded in zip(texts, found["texts"], found["decoded"], strict=True):
        assert ids == ours(tokens, text), text
        if style not in CLEANED:
            assert decoded == text
