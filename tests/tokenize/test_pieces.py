"""Long texts in pieces: nothing lost, no character split, the same tokens."""

import pytest
from hypothesis import example, given, strategies as st

from pipelines.tokenize import encode as pieces_module
from pipelines.tokenize.encode import pieces
from tests.support.tokenizers import MIXED, TEXT, byte_tokenizer, encode, every_style


@example(text=b"\x80" * 9, size=4)  # bytes that continue no character
@given(text=MIXED, size=st.integers(4, 12))
def test_pieces_are_the_text_and_split_no_character(text, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces_module, "PIECE_BYTES", size)
        cut = list(pieces(text))
    assert b"".join(cut) == text
    assert all(0 < len(piece) <= size for piece in cut)
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    [piece.decode() for piece in cut]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (b"", []),
        (b"a\nb\nc\n", [b"a\nb\nc\n"]),
        (b"a\nb\nc\nd\ne", [b"a\nb\nc", b"\nd\ne"]),
        (b"a;\nb;\nc", [b"a;\nb;\n", b"c"]),
        (b"aaa\xf0\x9f\x8e\xb2b", [b"aaa", b"\xf0\x9f\x8e\xb2b"]),
        (b"\x80" * 7, [b"\x80" * 3, b"\x80" * 4]),
    ],
)
def test_a_piece_ends_with_the_last_line_or_character_that_fits(monkeypatch, text, cut):
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 6)
    assert list(pieces(text)) == cut


@every_style
def test_a_text_in_pieces_has_the_tokens_of_the_whole(style, monkeypatch):
    text = b"".join([*TEXT[:2], "    return größer\n\n  (a + 12\n\tb); \n".encode() * 2] * 20)
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 200)
    cut = list(pieces(text))
    assert len(cut) > 10
    encoded = byte_tokenizer(style).encode_batch(cut)
    assert [i for ids in encoded for i in ids] == encode(byte_tokenizer(style), text)
