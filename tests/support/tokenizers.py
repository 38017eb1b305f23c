"""Tokenizers of the usual kinds, trained on a few lines, and what they are tried on."""

import json
from functools import cache

import pytest
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers as pre,
    processors,
    trainers,
)

from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer, byte_tokens
from pipelines.tokenize.vocabulary import byte_exact, train_bpe

END = "<|endoftext|>"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = [
    b"def f(x):\n    return x + 1  # \xcf\x80\n\n\n",
    "Ein Satz, größer als der andere; 日本語のテキスト 🎲 e\u0301 ½\r\n".encode(),
] * 20


def trained(pre_tokenizer, **model):
    """A tokenizer with the given pre-tokenizer, trained on TEXT."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([text.decode() for text in TEXT], trainer)
    return tokenizer


def gpt_2():
    tokenizer = trained(
        pre.ByteLevel(add_prefix_space=False), continuing_subword_prefix="", end_of_word_suffix=""
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([END])
    return tokenizer


def split_and_bytes(behavior="isolated", pattern=LLAMA_3, invert=False):
    cut = pre.Split(Regex(pattern), behavior, invert)
    return pre.Sequence([cut, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama_3():
    tokenizer = trained(split_and_bytes(), ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin_of_text|>", END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))],
    )
    return tokenizer


def qwen_2():
    tokenizer = trained(split_and_bytes())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([END, "<|im_start|>"])
    lost = AddedToken("  lost", lstrip=True, rstrip=True)
    tokenizer.add_tokens(["<tool>", "größer", "a▁", lost])
    return tokenizer


def llama_2():
    """With byte fallback for what is in no word, such as the end of a line."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", END, *byte_tokens(True)], show_progress=False
    )
    lines = [line for text in TEXT for line in text.decode().replace("🎲", "").splitlines()]
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_tokens(["<tool>", "▁lost▁"])
    return tokenizer


STYLES = {"gpt_2": gpt_2, "llama_3": llama_3, "qwen_2": qwen_2, "llama_2": llama_2}


def exact(tokenizer) -> ByteTokenizer:
    return byte_exact(json.loads(tokenizer.to_str()), END)


@cache
def byte_tokenizer(style) -> ByteTokenizer:
    if style == "trained":
        return train_bpe(TEXT, 300, END)
    return exact(STYLES[style]())


def encode(tokens: ByteTokenizer, text: bytes) -> list[int]:
    (ids,) = tokens.encode_batch([text])
    return ids


every_style = pytest.mark.parametrize("style", ["trained", *STYLES])
MIXED = st.lists(
    st.one_of(
        st.binary(max_size=8),
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from(
            [END, "<|im_start|>", "<tool>", "größer", " a  lost  b", "e\u0301", "\n", "a▁ ▁<0x0A>"]
        ).map(str.encode),
    )
).map(b"".join)  # fmt: skip
