"""Vocabularies, trained and adopted: what could lose bytes of a text is refused."""

import json
from pathlib import Path
from unicodedata import category

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers as pre

from pipelines.artifacts.tokens.byte_tokenizer import CHARACTERS
from pipelines.host.errors import UserError
from pipelines.tokenize import vocabulary
from pipelines.tokenize.vocabulary import RARE, adopt, byte_exact, symbol_tokenizer, train_bpe
from tests.support.gguf_files import AWKWARD
from tests.support.tokenizers import (
    END,
    TEXT,
    encode,
    gpt_2,
    llama_2,
    qwen_2,
    split_and_bytes,
    trained,
)


def test_an_end_of_text_is_added_to_a_tokenizer_without_special_tokens_alone(capsys):
    tokenizer = trained(pre.ByteLevel(add_prefix_space=False), byte_fallback=True)
    tokens = byte_exact(json.loads(tokenizer.to_str()), END)
    assert tokens.end_of_text == tokenizer.get_vocab_size() == tokens.vocab_size - 1
    assert f"{END!r} is added to it" in capsys.readouterr().out


def test_a_normalizer_is_left_out_and_that_is_said(capsys):
    tokens = byte_exact(json.loads(qwen_2().to_str()), END)
    assert "its normalizer (NFC) is left out" in capsys.readouterr().out
    text = "e\u0301  lost  <tool> ".encode()
    ids = encode(tokens, text)
    assert tokens.decode(ids) == text and tokens.tokenizer.token_to_id("<tool>") in ids


CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)


def test_what_gpt_4_cuts_by_removing_nothing_is_cut_alike():
    """What another pattern would remove is kept."""
    theirs = trained(split_and_bytes("removed", CL100K, invert=True))
    ours = byte_exact(json.loads(theirs.to_str()), END)
    for text in (*AWKWARD, *map(bytes.decode, TEXT[:2])):
        if END not in text:
            assert encode(ours, text.encode()) == theirs.encode(text).ids, text
    letters = trained(split_and_bytes("removed", r"\p{L}+", invert=True))
    ours = byte_exact(json.loads(letters.to_str()), END)
    assert ours.decode(encode(ours, TEXT[0])) == TEXT[0]


def test_pairs_of_a_long_word_count_within_its_pieces_alone(monkeypatch):
    """Text without spaces is one word, and the trainer's time grows with its square."""
    monkeypatch.setattr(vocabulary, "WORD_BYTES", 4)
    tokens = train_bpe([b"abcd" * 50], 300, END)
    assert max(map(len, tokens.bytes_of)) == 4
    spec = json.loads(tokens.tokenizer.to_str())
    assert spec["pre_tokenizer"]["type"] == "ByteLevel"


def word_piece():
    return Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))


def sentence_piece():
    """Without its bytes."""
    tokenizer = Tokenizer(models.BPE({"▁a": 0}, [], byte_fallback=True))
    tokenizer.pre_tokenizer = pre.Metaspace()
    return tokenizer


def spaces_as(mark):
    tokenizer = Tokenizer.from_str(llama_2().to_str())
    tokenizer.normalizer = None
    if mark:
        tokenizer.pre_tokenizer = pre.Metaspace(mark)
    return tokenizer


def without_bytes(*missing):
    spec = json.loads(trained(pre.ByteLevel(add_prefix_space=False)).to_str())
    vocabulary = spec["model"]["vocab"]
    for byte in missing:
        vocabulary[f"nothing{byte}"] = vocabulary.pop(CHARACTERS[byte])
    return Tokenizer.from_str(json.dumps(spec))


def ambiguous():
    tokenizer = gpt_2()
    tokenizer.add_tokens([CHARACTERS[0]])  # as text U+0100, as a token the byte 0
    return tokenizer


def with_id(token, number):
    """A tokenizer.json that `tokenizers` would not write."""
    spec = json.loads(gpt_2().to_str())
    spec["model"]["vocab"][token] = number
    return json.dumps(spec)


def many_special():
    tokenizer = gpt_2()
    tokenizer.add_special_tokens([*(f"<{i}>" for i in range(11)), "<reserved>"])
    return tokenizer


def split_at_space():
    return trained(pre.Sequence([pre.WhitespaceSplit(), pre.ByteLevel(False)]))


@pytest.mark.parametrize(
    ("make", "end_of_text", "words"),
    [
        (word_piece, END, "WordPiece, not a byte-level BPE"),
        (sentence_piece, END, "no token for 256 of the 256 bytes"),
        (lambda: spaces_as(None), END, "neither a byte-level BPE .* nor one with byte_fallback"),
        (lambda: spaces_as("_"), END, "its Metaspace writes a space as '_'"),
        (qwen_2, "<s>", r"no token '<s>': `end_of_text` .* '<\|endoftext\|>', '<\|im_start\|>'$"),
        (many_special, "<s>", r"such as '<\|endoftext\|>', '<0>', .*, '<6>', '<7>'$"),
        (lambda: trained(pre.ByteLevel(add_prefix_space=True)), END, "add_prefix_space"),
        (lambda: trained(split_and_bytes("removed")), END, "Split does not keep all of a text"),
        (split_at_space, END, "WhitespaceSplit does not keep all of a text"),
        (lambda: trained(pre.ByteLevel(False), dropout=0.1), END, r"model\.dropout: 0\.1"),
        (lambda: without_bytes(0xFF, 0x84, 0x41), END, "for 3 of the 256 bytes, 0x41 among"),
        (ambiguous, END, "is an added token, but also a token of ordinary text"),
        (lambda: with_id("def", 65), END, "two of its tokens have the same id"),
        (lambda: with_id("zz", 1 << 20), END, "the id 1048576, .* at most 1048576 ids"),
        (gpt_2, "def", "is a token that text contains"),
        (llama_2, "e", "is a token that text contains"),
    ],
)
def test_a_tokenizer_that_could_lose_bytes_is_refused_in_a_line(tmp_path, make, end_of_text, words):
    path, made = tmp_path / "tokenizer.json", make()
    path.write_text(made if isinstance(made, str) else made.to_str())
    with pytest.raises(UserError, match=words) as caught:
        adopt(path, end_of_text)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_bytes_that_text_does_without_are_those_of_no_character():
    """But of control characters, of which only those of a line count."""
    every = map(chr, range(0x110000))
    used = {*"".join(c for c in every if category(c) not in ("Cc", "Cn", "Cs")).encode()}
    assert {*range(256)} - used - {*b"\t\n\r"} == RARE


def test_bytes_that_text_does_without_may_lack_a_token(tmp_path, capsys):
    """As in SmolLM2's tokenizer. A text with one of them is refused, where `tokenizers` would leave
    the byte out without a word.
    """
    path = tmp_path / "tokenizer.json"
    without_bytes(0x00, 0x1B, 0xF1, 0xFF).save(str(path))
    tokens = adopt(path, END)
    assert "4 of the 256 bytes have no token" in capsys.readouterr().out
    assert tokens.decode(encode(tokens, TEXT[0])) == TEXT[0]
    for text, byte in ((b"a\x1bb", "0x1B"), (b"\xff", "0xFF"), (b"ok\x00", "0x00")):
        assert tokens.cannot_spell(text) == byte
        with pytest.raises(ValueError, match=f"no token for the byte {byte}"):
            encode(tokens, text)
    assert tokens.cannot_spell(b"\x1c\xc2\xa0") == ""


def test_a_space_that_a_metaspace_puts_before_a_text_is_left_out(capsys):
    tokens = byte_exact(json.loads(spaces_as("▁").to_str()), END)
    assert "the space that it puts before a text is left out" in capsys.readouterr().out
    for text in ("f (x)", " f (x)"):
        ids = encode(tokens, text.encode())
        assert tokens.tokenizer.decode(ids) == tokens.decode(ids).decode() == text


def test_a_file_with_keys_left_out_is_taken_as_one_with_all(tmp_path):
    """`tokenizers` reads such files too, GPT-2's own for one, and fills them in."""
    spec = json.loads(gpt_2().to_str())
    del spec["model"]["type"], spec["model"]["dropout"]
    for key in ("added_tokens", "truncation", "normalizer", "post_processor", "decoder"):
        del spec[key]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    tokens = adopt(tmp_path / "tokenizer.json", END)
    assert tokens.decode(encode(tokens, b"".join(TEXT))) == b"".join(TEXT)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path}: not a tokenizer\.json"):
        adopt(path, END)


@pytest.mark.parametrize(
    ("path", "words"), [("/nowhere/a.json", "No such file"), ("/dev/zero", "not a file")]
)
def test_a_path_that_is_no_file_is_named(path, words):
    with pytest.raises(UserError, match=f"^{path}: {words}"):
        adopt(Path(path), END)


def test_an_end_of_text_that_training_would_also_make_is_refused():
    with pytest.raises(UserError, match="end_of_text: 'def'"):
        train_bpe([b"def " * 9], 300, "def")


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
