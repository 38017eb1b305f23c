"""Byte-exact tokenizers: any bytes go in, invalid UTF-8 included, and come back unchanged.

A byte-level BPE has a token for each of the 256 bytes, so it can encode any text. An adopted one
may lack some, and then refuses texts with them. The file format and the encoder come from
`tokenizers`, which takes text only. So each stretch of valid UTF-8 goes through the encoder, and a
byte outside such a stretch becomes that byte's token.

The tokenizers of Llama 2 and TinyLlama, made by SentencePiece, write a space as ▁ and have the
tokens <0x00> … <0xFF> for the bytes of characters without a token (``byte_fallback``). A ▁ that
stands in a text is encoded by its bytes, too.
"""

import re
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipelines.host.errors import UserError
from pipelines.host.files import check_content

ESCAPED = re.compile(r"([\udc80-\udcff]+)")  # what Python makes of bytes that are not UTF-8
ESCAPED_OR_SPACE = re.compile(r"([\udc80-\udcff▁]+)")
BYTE = re.compile("<0x([0-9A-F]{2})>")


def byte_characters() -> str:
    """The 256 characters that stand for bytes 0 … 255 in a byte-level vocabulary (GPT-2's):
    printable ones of Latin-1 for themselves, those from U+0100 on for the others, in order.
    """
    latin_1, others = map(chr, range(256)), map(chr, count(0x100))
    return "".join(c if c.isprintable() and c != " " else next(others) for c in latin_1)


CHARACTERS = byte_characters()
BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}


class ByteTokenizer:
    """A BPE that pipelines/tokenize/vocabulary.py has made byte-exact, with its end of text."""

    def __init__(self, tokenizer: Tokenizer, end_of_text: str) -> None:
        self.tokenizer = tokenizer
        fallback = self.fallback = tokenizer.model.byte_fallback
        tokenizer.encode_special_tokens = True  # "<|endoftext|>" inside a text is text
        vocabulary, added = tokenizer.get_vocab(), tokenizer.get_added_tokens_decoder()
        self.end_of_text = vocabulary[end_of_text]
        self.vocab_size = max(vocabulary.values()) + 1  # more than the tokens if ids are left out
        self.bytes_of = [b""] * self.vocab_size  # special tokens stand for none
        for token, i in vocabulary.items():
            if i not in added:
                self.bytes_of[i] = spelled(token, fallback) or b""
            elif not added[i].special:
                self.bytes_of[i] = (token.replace("▁", " ") if fallback else token).encode()
        self.byte_ids = [vocabulary.get(token) for token in byte_tokens(fallback)]
        missing = bytes(byte for byte, i in enumerate(self.byte_ids) if i is None)
        self.unknown = re.compile(b"[" + re.escape(missing) + b"]") if missing else None

    def cannot_spell(self, text: bytes) -> str:
        """The first byte in a text that has no token, as 0x00; "" if all have one."""
        match = self.unknown.search(text) if self.unknown else None
        return f"0x{ord(match.group()):02X}" if match else ""

    def encode_batch(self, texts: list[bytes]) -> list[list[int]]:
        """Ids of texts, special tokens left out; raises ValueError for a byte without a token."""
        for text in texts:
            if byte := self.cannot_spell(text):
                raise ValueError(f"the tokenizer has no token for the byte {byte}")
        split = [stretches(text, self.fallback) for text in texts]
        valid = [s for segments in split for s in segments if isinstance(s, str)]
        encoded = iter(self.tokenizer.encode_batch_fast(valid, add_special_tokens=False))

        def ids(segment: str | bytes) -> list[int]:
            if isinstance(segment, str):
                return next(encoded).ids
            return [i for byte in segment if (i := self.byte_ids[byte]) is not None]

        return [list(chain.from_iterable(map(ids, segments))) for segments in split]

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes behind token ids."""
        return b"".join(self.bytes_of[i] for i in ids)

    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Bytes behind each token id, (V,)."""
        return np.array([len(text) for text in self.bytes_of], np.int64)


def byte_tokens(fallback: bool) -> list[str]:
    """The tokens of the 256 bytes in a byte-level vocabulary, or one with byte fallback."""
    return [f"<0x{byte:02X}>" for byte in range(256)] if fallback else [*CHARACTERS]


def spelled(token: str, fallback: bool = False) -> bytes | None:
    """The bytes that a token of a byte-level or ``fallback`` vocabulary spells; None if it spells
    no bytes.
    """
    if fallback:
        byte = BYTE.fullmatch(token)
        return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()
    try:
        return bytes([BYTES[character] for character in token])
    except KeyError:
        return None


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json; raises UserError if there is none at ``path``."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a file")
    try:
        check_content(path)
        return Tokenizer.from_buffer(path.read_bytes())
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except Exception as error:  # `tokenizers` raises nothing more specific
        raise UserError(f"{path}: not a tokenizer.json ({error})") from None


def stretches(text: bytes, fallback: bool = False) -> list[str | bytes]:
    """Split a text into stretches of decoded UTF-8 and other bytes (with ``fallback``, ▁ too)."""
    try:
        decoded = text.decode()
        if not fallback or "▁" not in decoded:
            return [decoded]
    except UnicodeDecodeError:
        decoded = text.decode(errors="surrogateescape")
    parts = (ESCAPED_OR_SPACE if fallback else ESCAPED).split(decoded)
    return [
        part.encode(errors="surrogateescape") if i % 2 else part
        for i, part in enumerate(parts)
        if part
    ]
