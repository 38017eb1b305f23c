"""GGUF files of tiny models, with tokenizers that cut text in every way that llama.cpp has a name
for, and texts that are awkward to cut.
"""

import random
from functools import cache
from types import SimpleNamespace

from tokenizers import Tokenizer, models, pre_tokenizers as pre, trainers

from ftmodel.conversion.llama import llama_config
from pipelines.artifacts.checkpoint import Manifest
from pipelines.export import llama_cpp
from tests.support.tokenizers import END, LLAMA_3, TEXT, byte_tokenizer, exact, split_and_bytes

CONTEXT = 48
SHAPES = [
    {},
    {"tied": False, "n_kv_heads": 1},
    {"norm_eps": 0.3, "rope_theta": 50.0, "n_kv_heads": 4},
    {"head_width": 12, "rope_theta": 50.0},
]
MANIFEST = Manifest(
    experiment="retrofit",
    run_name="baseline",
    run={"seed": 3, "data": "stdlib"},
    architecture={},
    vocab_size=0,
    data_hash="abc",
    spec_hash="def",
)
LETTERS = "aZsStTdDéßπ日本語한가ไทयि0123456789½٣Ⅻ '’\".,;!?-_()<>|/\\\n\r\t\u00a0\u2003\u0301€∀🎲 "
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
    *(text.decode() for text in TEXT[:2]),
    *("".join(random.Random(seed).choices(LETTERS, k=60)) for seed in range(40)),
]
BYTES = pre.ByteLevel(add_prefix_space=False)
PRE_TOKENIZERS = {
    "trained": "trillion",
    "gpt_2": "trillion",
    "smollm_2": "smollm",
    "qwen_2": "qwen2",
    "llama_3": "llama-bpe",
    "llama_3_by_merges": "dbrx",
}


CUTS = {
    "gpt_2": BYTES,
    "smollm_2": pre.Sequence([pre.Digits(individual_digits=True), BYTES]),
    "qwen_2": split_and_bytes(pattern=LLAMA_3.replace("{1,3}", "")),
    "llama_3": split_and_bytes(),
    "llama_3_by_merges": split_and_bytes(),
}


@cache
def tokenizer_of(style):
    """Its merges go across whatever a pre-tokenizer may cut, so that another cuts other tokens."""
    if style == "trained":
        return byte_tokenizer(style)
    tokenizer = Tokenizer(models.BPE(ignore_merges=style == "llama_3"))
    tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([*AWKWARD[:6], *AWKWARD[8:]], trainer)
    tokenizer.pre_tokenizer = CUTS[style]
    tokenizer.add_special_tokens([END, "<|im_start|>"])
    tokenizer.add_tokens(["<tool>", "größer", "  lost"])
    return exact(tokenizer)


def shards_of(tokens):
    return SimpleNamespace(
        metadata=SimpleNamespace(vocab_size=tokens.vocab_size, end_of_text=tokens.end_of_text),
        tokenizer=lambda: Tokenizer.from_str(tokens.tokenizer.to_str()),
    )


def export(make_model, path, style="trained", **changes):
    """Write a model's GGUF file; returns the model and the tokenizer."""
    tokens = tokenizer_of(style)
    shape = dict(latent_bits=0, d_model=32, ffn_width=48, context=CONTEXT)
    model = make_model(**(shape | changes), vocab_size=tokens.vocab_size).eval()
    llama_cpp.write(
        path,
        model,
        llama_config(model.config, tokens.vocab_size),
        llama_cpp.vocabulary(shards_of(tokens)),
        llama_cpp.provenance(MANIFEST, 1_000_000_000_000),
    )
    return model, tokens
