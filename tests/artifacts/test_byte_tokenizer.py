"""Tokenizers, trained and taken: any bytes come back, and what could lose some is refused."""

import json
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    processors,
    trainers,
)
from tokenizers import pre_tokenizers as pre

from pipelines.artifacts.tokens import byte_tokenizer as tokenizer_module
from pipelines.artifacts.tokens.byte_tokenizer import (
    CHARACTERS,
    ByteTokenizer,
    adopt,
    byte_exact,
    pieces,
    symbol_tokenizer,
    train_bpe,
)
from pipelines.common.errors import UserError

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
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([text.decode() for text in TEXT], trainer)
    return made


def gpt_2():
    made = trained(
        pre.ByteLevel(add_prefix_space=False), continuing_subword_prefix="", end_of_word_suffix=""
    )
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.add_special_tokens([END])
    return made


def split_and_bytes(behavior="isolated"):
    return pre.Sequence(
        [
            pre.Split(Regex(LLAMA_3), behavior),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def llama_3():
    made = trained(split_and_bytes(), ignore_merges=True)
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    made.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        special_tokens=[("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))],
    )
    return made


def qwen_2():
    made = trained(split_and_bytes())
    made.normalizer = normalizers.NFC()
    made.add_special_tokens([END, "<|im_start|>"])
    made.add_tokens(["<tool>", "größer", AddedToken("  lost", lstrip=True, rstrip=True)])
    return made


STYLES = {"gpt_2": gpt_2, "llama_3": llama_3, "qwen_2": qwen_2}


@cache
def tokenizer(style) -> ByteTokenizer:
    if style == "trained":
        return train_bpe(TEXT, 300, END)
    return byte_exact(json.loads(STYLES[style]().to_str()), END)


def encode(tokens: ByteTokenizer, text: bytes) -> list[int]:
    (ids,) = tokens.encode_batch([text])
    return ids


every_style = pytest.mark.parametrize("style", ["trained", *STYLES])
MIXED = st.lists(
    st.one_of(
        st.binary(max_size=8),
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from([END, "<|im_start|>", "<tool>", "größer", " a  lost  b", "e\u0301", "\n"])
        .map(str.encode),
    )
).map(b"".join)  # fmt: skip


@every_style
@given(text=MIXED)
@example(text=b"")
@example(text=bytes(range(256)))
@example(text=b"\xf0\x9f\x8e")  # three quarters of a character
@example(text=b"a\xed\xa0\x80b\xc0\x80")  # a surrogate, an overlong zero
@example(text=END.encode())
@example(text="e\u0301  <tool> \r\n".encode())
def test_any_bytes_come_back(style, text):
    tokens = tokenizer(style)
    ids = encode(tokens, text)
    assert tokens.decode(ids) == text
    assert tokens.end_of_text not in ids
    assert sum(tokens.sizes()[ids]) == len(text)
    assert all(0 <= i < tokens.vocab_size for i in ids)


@every_style
@given(texts=st.lists(MIXED, max_size=5))
def test_texts_encoded_together_are_those_encoded_alone(style, texts):
    tokens = tokenizer(style)
    assert tokens.encode_batch(texts) == [encode(tokens, text) for text in texts]


@every_style
def test_valid_text_has_the_tokens_of_the_tokenizer_as_it_was(style):
    """Here with no character that a normalizer changes, and without what a post-processor adds."""
    original = STYLES[style]() if style in STYLES else tokenizer(style).tokenizer
    text = "def g(y):\n    return größer(y) + 日本  # π <tool>\n"
    expected = original.encode(text, add_special_tokens=False).ids
    assert encode(tokenizer(style), text.encode()) == expected


@every_style
def test_what_is_saved_is_what_is_used(style, tmp_path):
    tokens = tokenizer(style)
    tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = ByteTokenizer(Tokenizer.from_file(str(tmp_path / "tokenizer.json")), END)
    text = b"".join(TEXT) + END.encode() + bytes(range(256))
    assert encode(loaded, text) == encode(tokens, text)
    assert loaded.end_of_text == tokens.end_of_text == loaded.tokenizer.token_to_id(END)
    assert loaded.tokenizer.decode(encode(loaded, TEXT[0])) == TEXT[0].decode()


def test_the_characters_of_bytes_are_those_of_tokenizers():
    for byte in range(128):
        (pair,) = pre.ByteLevel(add_prefix_space=False).pre_tokenize_str(chr(byte))
        assert pair[0] == CHARACTERS[byte]
    assert set(CHARACTERS) == set(pre.ByteLevel.alphabet())
    two = pre.ByteLevel(add_prefix_space=False).pre_tokenize_str("ÿ")[0][0]
    assert two == CHARACTERS[0xC3] + CHARACTERS[0xBF]


def test_an_end_of_text_that_is_missing_is_added():
    made = llama_3()
    assert made.token_to_id(END) is None
    tokens = byte_exact(json.loads(made.to_str()), END)
    assert tokens.end_of_text == made.get_vocab_size() == tokens.vocab_size - 1


def test_a_normalizer_is_left_out_and_that_is_said(capsys):
    byte_exact(json.loads(qwen_2().to_str()), END)
    assert "its normalizer (NFC) is left out" in capsys.readouterr().out


def word_piece():
    return Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))


def sentence_piece():
    made = Tokenizer(models.BPE({"▁a": 0}, [], byte_fallback=True))
    made.pre_tokenizer = pre.Metaspace()
    return made


def without_a_byte():
    spec = json.loads(trained(pre.ByteLevel(add_prefix_space=False)).to_str())
    vocabulary = spec["model"]["vocab"]
    vocabulary["nothing"] = vocabulary.pop(CHARACTERS[0xFF])
    return Tokenizer.from_str(json.dumps(spec))


def ambiguous():
    made = gpt_2()
    made.add_tokens([CHARACTERS[0]])  # as text U+0100, as a token the byte 0
    return made


@pytest.mark.parametrize(
    ("made", "end_of_text", "words"),
    [
        (word_piece, END, "WordPiece, not a byte-level BPE"),
        (sentence_piece, END, "not a byte-level BPE"),
        (lambda: trained(pre.ByteLevel(add_prefix_space=True)), END, "add_prefix_space"),
        (lambda: trained(split_and_bytes("removed")), END, "Split does not keep all of a text"),
        (
            lambda: trained(pre.Sequence([pre.WhitespaceSplit(), pre.ByteLevel(False)])),
            END,
            "WhitespaceSplit does not keep all of a text",
        ),
        (lambda: trained(pre.ByteLevel(False), dropout=0.1), END, r"model\.dropout: 0\.1"),
        (without_a_byte, END, "no token for 1 of the 256 bytes, 0xFF"),
        (ambiguous, END, "is an added token, but also one that text is made of"),
        (gpt_2, "a", "that text is made of"),
        (gpt_2, "def", "that text is made of"),
    ],
)
def test_a_tokenizer_that_could_lose_bytes_is_refused_in_a_line(tmp_path, made, end_of_text, words):
    path = tmp_path / "tokenizer.json"
    made().save(str(path))
    with pytest.raises(UserError, match=words) as caught:
        adopt(path, end_of_text)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_with_keys_left_out_is_taken_or_refused_as_one_with_all(tmp_path):
    """`tokenizers` reads such files too, and fills them in."""
    path = tmp_path / "tokenizer.json"
    spec = json.loads(gpt_2().to_str())
    del spec["model"]["type"], spec["model"]["dropout"]
    spec["added_tokens"] = []
    for key in ("added_tokens", "truncation", "normalizer", "post_processor", "decoder"):
        del spec[key]
    path.write_text(json.dumps(spec))
    tokens = adopt(path, END)
    assert tokens.decode(encode(tokens, b"".join(TEXT))) == b"".join(TEXT)
    del spec["pre_tokenizer"]
    path.write_text(json.dumps(spec))
    with pytest.raises(UserError, match="not a byte-level BPE"):
        adopt(path, END)


def test_two_tokens_of_one_id_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    spec = json.loads(gpt_2().to_str())
    vocabulary = spec["model"]["vocab"]
    vocabulary["def"] = vocabulary["re"]
    path.write_text(json.dumps(spec))
    with pytest.raises(UserError, match=r"tokenizer\.json: two of its tokens have the same id"):
        adopt(path, END)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"{", "not a tokenizer.json"),
        (b"\xff\xfe", "not a tokenizer.json"),
        (b"[]", "not a tokenizer.json"),
        (b'{"model": {"type": "BPE"}}', "not a tokenizer.json"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content, words):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        adopt(path, END)
    assert str(path) in str(caught.value)


def test_an_end_of_text_that_training_would_also_make_is_refused():
    with pytest.raises(UserError, match="end_of_text: 'def'"):
        train_bpe([b"def " * 9], 300, "def")


@given(text=MIXED, size=st.integers(4, 12))
def test_pieces_are_the_text_and_split_no_character(text, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "PIECE", size)
        cut = list(pieces(text))
    assert b"".join(cut) == text
    assert all(0 < len(piece) <= size for piece in cut)
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    [piece.decode() for piece in cut]


@every_style
def test_a_text_in_pieces_has_the_tokens_of_the_whole(style, monkeypatch):
    text = b"".join([*TEXT[:2], "    return größer\n\n  (a + 12\n\tb); \n".encode() * 2] * 20)
    monkeypatch.setattr(tokenizer_module, "PIECE", 200)
    cut = list(pieces(text))
    assert len(cut) > 10
    encoded = tokenizer(style).encode_batch(cut)
    assert [i for ids in encoded for i in ids] == encode(tokenizer(style), text)


@pytest.mark.parametrize(
    ("symbols", "separator"), [(["a", "b", ".", "_"], ""), (["the", "film", "was", "."], " ")]
)
def test_a_process_has_one_token_a_symbol(symbols, separator):
    tokens = symbol_tokenizer(symbols, separator)
    tokens = Tokenizer.from_str(tokens.to_str())
    text = separator.join(symbols * 2)
    assert tokens.encode(text).ids == [*range(len(symbols))] * 2
    assert tokens.decode([*range(len(symbols))] * 2) == text
    assert tokens.decode(tokens.encode(text + " é").ids) != text + " é"  # unknown, left out
