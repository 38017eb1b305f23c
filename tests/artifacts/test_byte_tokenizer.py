"""Byte tokenizers: any bytes come back, with the tokens of the library's own encoder."""

import pytest
from hypothesis import example, given, settings, strategies as st
from tokenizers import Tokenizer, pre_tokenizers as pre

from pipelines.artifacts.tokens.byte_tokenizer import (
    ByteTokenizer,
    byte_characters,
    byte_tokens,
    read_tokenizer,
    spelled,
    stretches,
)
from pipelines.host.errors import UserError
from tests.support.mutants import rejects
from tests.support.tokenizers import (
    END,
    MIXED,
    STYLES,
    TEXT,
    byte_tokenizer,
    encode,
    every_style,
    llama_3,
)


@rejects(
    "ByteTokenizer.encode_batch: «[i for byte in segment if (i := self.byte_ids[byte]) is "
    "not None]→list(segment)»",
    "bytes that are not UTF-8 as ids",
)
@rejects('ByteTokenizer.sizes: (text«→.decode(errors="replace")»', "characters counted for bytes")
@every_style
@given(text=MIXED)
@settings(max_examples=50)
@example(text=b"")
@example(text=bytes(range(256)))
@example(text=b"\xf0\x9f\x8e")  # three quarters of a character
@example(text=b"a\xed\xa0\x80b\xc0\x80")  # a surrogate, an overlong zero
@example(text=END.encode())
@example(text="a▁ lost ".encode())
@example(text="e\u0301  <tool> \r\n".encode())
def test_any_bytes_come_back(style, text):
    tokens = byte_tokenizer(style)
    ids = encode(tokens, text)
    assert tokens.decode(ids) == text
    assert tokens.end_of_text not in ids
    assert sum(tokens.sizes()[ids]) == len(text)
    assert all(0 <= i < tokens.vocab_size for i in ids)


@every_style
@given(texts=st.lists(MIXED, max_size=5))
@settings(max_examples=15)
def test_texts_encoded_together_are_those_encoded_alone(style, texts):
    tokens = byte_tokenizer(style)
    assert tokens.encode_batch(texts) == [encode(tokens, text) for text in texts]


@every_style
def test_valid_text_has_the_tokens_of_the_tokenizer_as_it_was(style):
    """Here with no character that a normalizer changes, and without what a post-processor adds;
    Llama 2's puts a space before a text, and behind each added token.
    """
    original = STYLES[style]() if style in STYLES else byte_tokenizer(style).tokenizer
    text, before = "def g(y):\n    return größer(y) + 日本  # π <tool>\n", ""
    if style == "llama_2":
        text, before = text.replace("<tool>", ""), " "
    expected = original.encode(text, add_special_tokens=False).ids
    assert encode(byte_tokenizer(style), f"{before}{text}".encode()) == expected


@every_style
def test_what_is_saved_is_what_is_used(style, tmp_path):
    tokens = byte_tokenizer(style)
    tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = ByteTokenizer(Tokenizer.from_file(str(tmp_path / "tokenizer.json")), END)
    text = b"".join(TEXT) + END.encode() + bytes(range(256))
    assert encode(loaded, text) == encode(tokens, text)
    assert loaded.end_of_text == tokens.end_of_text == loaded.tokenizer.token_to_id(END)
    assert loaded.tokenizer.decode(encode(loaded, TEXT[0])) == TEXT[0].decode()


def test_the_characters_of_bytes_are_those_of_tokenizers():
    characters = byte_characters()
    assert sorted(characters) == sorted(pre.ByteLevel.alphabet())
    for text in ("".join(map(chr, range(128))), "ÿ"):
        pairs = pre.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
        assert "".join(word for word, _ in pairs) == "".join(characters[b] for b in text.encode())


def test_only_what_is_not_utf_8_goes_by_its_bytes():
    assert stretches("a▁b".encode()) == ["a▁b"]
    assert stretches("a▁b".encode(), fallback=True) == ["a", "▁".encode(), "b"]
    assert stretches(b"ab\xff\xfecd\xff") == ["ab", b"\xff\xfe", "cd", b"\xff"]
    assert (spelled("Ġa"), spelled("▁a", fallback=True)) == (b" a", b" a")
    for fallback in (False, True):
        spellings = [spelled(token, fallback) for token in byte_tokens(fallback)]
        assert spellings == [bytes([byte]) for byte in range(256)]


def test_a_post_processor_adds_no_token():
    assert encode(ByteTokenizer(llama_3(), END), b"def") == encode(
        byte_tokenizer("llama_3"), b"def"
    )


def test_a_folder_is_no_tokenizer(tmp_path):
    with pytest.raises(UserError, match=r"not a file$"):
        read_tokenizer(tmp_path)
