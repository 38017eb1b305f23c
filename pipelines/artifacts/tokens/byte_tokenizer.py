"""Byte-exact tokenizers: any bytes go in, invalid UTF-8 included, and come back unchanged.

A byte-level BPE has a token for each of the 256 bytes, so that no text is unknown to it; the file
format and the encoder are those of `tokenizers`, which takes text only. So each stretch of valid
UTF-8 goes through the encoder, and a byte outside such a stretch becomes the token of that byte.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.common.errors import UserError

PIECE = 1 << 16  # bytes that one core encodes at once of a longer document
ESCAPED = re.compile(r"([\udc80-\udcff]+)")  # what Python makes of bytes that are not UTF-8
LINE_END = re.compile(rb"[0-9A-Za-z](?=\n)")
KEEPS_TEXT = ("ByteLevel", "Split", "Digits", "Punctuation", "UnicodeScripts")  # pre-tokenizers


def byte_characters() -> str:
    """The 256 characters that stand for bytes 0 … 255 in a byte-level vocabulary (GPT-2's):
    printable ones of Latin-1 for themselves, those from U+0100 on for the others, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


CHARACTERS = byte_characters()
BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}


class ByteTokenizer:
    """A byte-level BPE and the id of its end of text; what `train_bpe` and `adopt` make."""

    def __init__(self, tokenizer: Tokenizer, end_of_text: str) -> None:
        self.tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # "<|endoftext|>" inside a text is text
        vocabulary, added = tokenizer.get_vocab(), tokenizer.get_added_tokens_decoder()
        self.end_of_text = vocabulary[end_of_text]
        self.vocab_size = max(vocabulary.values()) + 1  # more than tokens where ids are left out
        self.bytes_of = [b""] * self.vocab_size  # special tokens stand for none
        for token, i in vocabulary.items():
            if i not in added:
                self.bytes_of[i] = spelled(token) or b""
            elif not added[i].special:
                self.bytes_of[i] = token.encode()
        self.byte_ids = [vocabulary[character] for character in CHARACTERS]

    def encode_batch(self, texts: list[bytes]) -> list[list[int]]:
        """Token ids of each of several texts, any bytes; no special token is among them."""
        split = [stretches(text) for text in texts]
        valid = [s for segments in split for s in segments if isinstance(s, str)]
        encoded = iter(self.tokenizer.encode_batch_fast(valid, add_special_tokens=False))

        def ids(segment: str | bytes) -> list[int]:
            if isinstance(segment, str):
                return next(encoded).ids
            return [self.byte_ids[byte] for byte in segment]

        return [list(chain.from_iterable(map(ids, segments))) for segments in split]

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes behind token ids."""
        return b"".join(self.bytes_of[i] for i in ids)

    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Bytes behind each token id, (V,)."""
        return np.array([len(text) for text in self.bytes_of], np.int64)


def spelled(token: str) -> bytes | None:
    """The bytes that a token of a byte-level vocabulary spells; None if it spells none."""
    try:
        return bytes([BYTES[character] for character in token])
    except KeyError:
        return None


def stretches(text: bytes) -> list[str | bytes]:
    """A text as stretches of valid UTF-8, decoded, and of other bytes, as they are."""
    try:
        return [text.decode()]
    except UnicodeDecodeError:
        parts = ESCAPED.split(text.decode(errors="surrogateescape"))
    return [
        part.encode(errors="surrogateescape") if i % 2 else part
        for i, part in enumerate(parts)
        if part
    ]


def pieces(text: bytes) -> Iterator[bytes]:
    """A text in pieces of at most PIECE bytes, if possible cut where a line ends in a letter or
    digit: there the usual patterns cut as well, so that the tokens are those of the whole text.
    """
    start = 0
    while len(text) - start > PIECE:
        stop = start + PIECE
        cut = None
        for cut in LINE_END.finditer(text, start, stop):  # noqa: B007 (the last one is wanted)
            pass
        if cut:
            stop = cut.end()
        else:
            while stop > start + PIECE - 3 and text[stop] & 0xC0 == 0x80:  # inside a character
                stop -= 1
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


def train_bpe(texts: Iterable[bytes], vocab_size: int, end_of_text: str) -> ByteTokenizer:
    """A byte-level BPE with GPT-2's pattern; smaller than asked if ``texts`` have too few pairs.

    Raises UserError if the end of text is a token that text is made of.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[end_of_text],
        initial_alphabet=list(CHARACTERS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        (s for text in texts for piece in pieces(text) for s in stretches(piece) if type(s) is str),
        trainer,
    )
    return byte_exact(json.loads(tokenizer.to_str()), end_of_text)


def adopt(path: Path, end_of_text: str) -> ByteTokenizer:
    """A user's tokenizer.json; raises UserError unless it can be made byte-exact."""
    try:
        loaded = Tokenizer.from_buffer(path.read_bytes())
        ids = loaded.get_vocab().values()
        if len(set(ids)) < len(ids):
            raise UserError("two of its tokens have the same id: text would be lost")
        return byte_exact(json.loads(loaded.to_str()), end_of_text)  # which has all keys
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # `tokenizers` raises no other
        if type(error) is not Exception and not isinstance(error, ValueError):
            raise
        raise UserError(f"{path}: not a tokenizer.json ({error})") from None


def byte_exact(spec: dict[str, Any], end_of_text: str) -> ByteTokenizer:
    """A tokenizer.json's content made byte-exact: what alters text is left out, which is said.

    Raises UserError where that is not enough.
    """
    model = spec["model"]
    if model["type"] != "BPE":
        raise UserError(f"{model['type']}, not a byte-level BPE: it would not give any bytes back")
    parts = pre_tokenizer_parts(spec["pre_tokenizer"])
    kinds = [part["type"] for part in parts]
    if kinds.count("ByteLevel") != 1:
        raise UserError("not a byte-level BPE (one ByteLevel pre-tokenizer): text would be lost")
    for part in parts:
        if part["type"] not in KEEPS_TEXT or part.get("behavior") == "Removed":
            raise UserError(f"its pre-tokenizer {part['type']} does not keep all of a text")
        if part.get("add_prefix_space"):
            raise UserError("add_prefix_space: true puts a space before each text")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name):
            raise UserError(f"model.{name}: {model[name]!r} does not fit a byte-exact tokenizer")
    vocabulary = model["vocab"]
    if missing := [byte for byte in range(256) if CHARACTERS[byte] not in vocabulary]:
        raise UserError(f"no token for {len(missing)} of the 256 bytes, 0x{missing[0]:02X} first")
    for name in ("normalizer", "truncation", "padding"):
        if spec.get(name):
            if name == "normalizer":
                kind = spec[name]["type"]
                print(f"tokenizer: its normalizer ({kind}) is left out: it would alter text")
            spec[name] = None
    spec["post_processor"] = None  # adds tokens
    spec["decoder"] = json.loads(decoders.ByteLevel().__getstate__())
    merges = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
    ordinary = {*CHARACTERS, *("".join(pair) for pair in merges)}
    if end_of_text in ordinary:
        raise UserError(f"end_of_text: {end_of_text!r} is a token that text is made of")
    for token in spec["added_tokens"]:
        content = token["content"]
        token["lstrip"] = token["rstrip"] = False  # would swallow the space around it
        token["special"] |= content == end_of_text
        if content in ordinary and (token["special"] or spelled(content) != content.encode()):
            raise UserError(f"{content!r} is an added token, but also one that text is made of")
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.add_special_tokens([end_of_text])  # if it is not there
    return ByteTokenizer(tokenizer, end_of_text)


def pre_tokenizer_parts(spec: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The pre-tokenizers that one is a sequence of, itself if it is none."""
    if spec is None:
        return []
    if spec["type"] != "Sequence":
        return [spec]
    return [part for inner in spec["pretokenizers"] for part in pre_tokenizer_parts(inner)]


def symbol_tokenizer(symbols: Iterable[str], separator: str) -> Tokenizer:
    """One token a symbol of a process; an id is the symbol's place.

    BPE without merges, as it leaves out what is unknown where other models raise.
    """
    vocabulary = {symbol: i for i, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    if separator:
        assert separator == " "  # which joins tokens where there is no decoder
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer
