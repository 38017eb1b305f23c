"""A GGUF file in the hands of transformers, and what is in it."""

import json

import pytest
import torch
from gguf import GGUFReader, TokenType
from tokenizers import AddedToken, pre_tokenizers as pre
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftmodel.conversion.llama import llama_config
from pipelines.artifacts import llama_files
from pipelines.export import llama_cpp
from pipelines.tokenize.vocabulary import byte_exact, train_bpe
from tests.support.gguf_files import (
    AWKWARD,
    BYTES,
    CONTEXT,
    MANIFEST,
    PRE_TOKENIZERS,
    SHAPES,
    export,
    shards_of,
    tokenizer_of,
)
from tests.support.mutants import rejects
from tests.support.tokenizers import END, STYLES, encode, exact, split_and_bytes, trained


@rejects("llama_cpp.write: «writer.add_rope_freq_base→»(", "a GGUF without RoPE's base")
@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.no_grad()
def test_transformers_computes_our_logits(make_model, tmp_path, changes):
    path = tmp_path / "model.gguf"
    model, _ = export(make_model, path, **changes)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    tokens = torch.randint(300, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    expected = model.logits(model(tokens).hidden)
    assert expected.std() > 0.1, "logits this small would compare nothing"
    assert (theirs(tokens).logits - expected).abs().max() < 1e-4 * expected.std()
    assert theirs.config.max_position_embeddings == CONTEXT
    assert theirs.config.tie_word_embeddings == model.config.tied


@rejects('llama_cpp.vocabulary: in «→sorted(»model["merges"]«→)»', "merges in another order")
@rejects("llama_cpp.vocabulary: «USER_DEFINED→NORMAL»", "an added token among ordinary ones")
@pytest.mark.parametrize("style", [style for style in PRE_TOKENIZERS if style != "smollm_2"])
def test_the_tokenizer_of_transformers_is_ours(make_model, tmp_path, style):
    """But that of SmolLM, whose name transformers does not know; nor does it know an added token
    with spaces, and it decodes one with other letters than ASCII's as if it were ordinary.
    """
    path = tmp_path / "model.gguf"
    _, tokens = export(make_model, path, style)
    theirs = AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name, split_special_tokens=True
    )
    for text in AWKWARD:
        ids = theirs(text).input_ids
        assert ids == [tokens.end_of_text, *encode(tokens, text.encode())], text
        assert "größer" in text or theirs.decode(ids[1:]) == text
    assert theirs.bos_token == theirs.eos_token == END


@rejects('llama_cpp.PRE_TOKENIZERS: «trillion→gpt-2»",', "text that llama.cpp takes spaces out of")
@pytest.mark.parametrize("style", PRE_TOKENIZERS)
def test_the_name_of_the_pattern_that_cuts_text(style):
    assert llama_cpp.vocabulary(shards_of(tokenizer_of(style))).pre == PRE_TOKENIZERS[style]


@rejects("llama_cpp.write: «num_key_value_heads→num_attention_heads»", "heads for those of keys")
def test_entries_of_the_file(make_model, tmp_path):
    path = tmp_path / "model.gguf"
    _, tokens = export(make_model, path, "qwen_2", norm_eps=0.25, rope_theta=50.0)
    entries = {name: field.contents() for name, field in GGUFReader(path).fields.items()}
    expected = {
        "general.architecture": "llama",
        "general.file_type": 0,
        "general.name": "retrofit/baseline",
        "general.seed": 3,
        "general.data_hash": "abc",
        "general.spec_hash": "def",
        "general.trained_tokens": 1_000_000_000_000,
        "general.git_revision": "not recorded",
        "general.device": "not recorded",
        "llama.context_length": CONTEXT,
        "llama.vocab_size": tokens.vocab_size,
        "llama.rope.freq_base": 50.0,
        "llama.attention.layer_norm_rms_epsilon": 0.25,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.rope.dimension_count": 8,
        "llama.attention.key_length": 8,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.bos_token_id": tokens.end_of_text,
    }
    assert {name: entries[name] for name in expected} == expected
    kinds = dict(
        zip(entries["tokenizer.ggml.tokens"], entries["tokenizer.ggml.token_type"], strict=True)
    )
    assert kinds[END] == kinds["<|im_start|>"] == TokenType.CONTROL
    assert kinds["<tool>"] == kinds["  lost"] == TokenType.USER_DEFINED
    assert kinds["Ġ"] == TokenType.NORMAL


@rejects('llama_cpp.vocabulary: tokens[«added["id"]→len(model["vocab"]) - 1»', "a counted id")
def test_an_id_that_is_left_out_is_an_unused_token():
    spec = json.loads(STYLES["gpt_2"]().to_str())
    (end,) = spec["added_tokens"]
    last = end["id"]
    end["id"] = spec["model"]["vocab"][END] = last + 2
    tokens = byte_exact(spec, END)
    words = llama_cpp.vocabulary(shards_of(tokens))
    assert words.tokens[last : last + 3] == [f"[PAD{last}]", f"[PAD{last + 1}]", END]
    assert words.types[last : last + 2] == [TokenType.UNUSED] * 2


def test_the_padding_of_a_vocabulary_is_tokens_that_are_not_used(make_model, tmp_path):
    path, padding = tmp_path / "b.gguf", {"model.embed_tokens.weight": torch.randn(3, 32)}
    model, tokens = export(make_model, tmp_path / "a.gguf")
    rows = tokens.vocab_size + 3
    words = llama_cpp.vocabulary(shards_of(tokens), rows)
    assert words.types[-4:] == [TokenType.NORMAL, *[TokenType.UNUSED] * 3]
    about = llama_cpp.provenance(MANIFEST, 1)
    llama_cpp.write(path, model, llama_config(model.config, rows), words, about, padding)
    weights = llama_files.read_gguf(path)[1]["model.embed_tokens.weight"]
    assert torch.equal(weights, torch.cat((model.embedding.weight, *padding.values())))


def test_a_tokenizer_that_llama_cpp_does_not_have_is_refused():
    whole_word = STYLES["gpt_2"]()
    whole_word.add_tokens([AddedToken("word", single_word=True)])
    uncut = pre.ByteLevel(False, use_regex=False)
    for tokens, words in (
        (exact(whole_word), "^its tokenizer takes 'word' for .* whole word"),
        (
            exact(trained(pre.Sequence([pre.Punctuation(), BYTES]))),
            r"^llama.cpp has no name for .*Punctuation.* and then 's\|.*ignore_merges False$",
        ),
        (exact(trained(split_and_bytes(behavior="contiguous"))), "no name for .*Contiguous"),
        (exact(trained(split_and_bytes(invert=True))), "no name for .*invert"),
        (exact(trained(uncut)), "not at all, ignore_merges False"),
        (exact(trained(BYTES, ignore_merges=True)), "ignore_merges True$"),
        (train_bpe([b"a"], 257, END), r"^its tokenizer has no merges, which"),
    ):
        with pytest.raises(ValueError, match=words):
            llama_cpp.vocabulary(shards_of(tokens))
