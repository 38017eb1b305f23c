"""The vocabulary of a data set, written as tokenizer.json: a byte-level BPE trained on its text, a
tokenizer.json of the user's, or the symbols of a process. A user's is byte-level, or has ▁ for
spaces and byte fallback, like Llama 2's.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import file_digest
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.byte_tokenizer import (
    CHARACTERS,
    ByteTokenizer,
    byte_tokens,
    read_tokenizer,
    spelled,
    stretches,
)
from pipelines.config.data import TextData
from pipelines.host.console import Bar
from pipelines.host.errors import UserError
from pipelines.host.files import write_file
from pipelines.tokenize.encode import pieces

SAMPLE_BYTES = 256 << 20  # of text, at most, that a tokenizer is trained on
# of a word, at most, that merges are counted in: the trainer's time grows with its square, and text
# without spaces (DNA, Base64) is one word
WORD_BYTES = 1024
LARGEST_VOCABULARY = 1 << 20  # ids; today's largest have 2^18
# bytes that an adopted tokenizer may lack: control characters, bytes that UTF-8 never has, and
# first bytes in the planes of Unicode that have no characters (4 to 11)
RARE = {*range(0x20)} - {*b"\t\n\r"} | {0x7F, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
KEEPS_TEXT = ("ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "UnicodeScripts")
MAX_TOKENS_NAMED = 9  # in a message
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}  # a normalizer
WITH_SPACES = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
)


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def write_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    write_file(path, tokenizer.to_str(pretty=True))


def text_tokenizer(key: str, data: TextData, train_parts: list[Path], path: Path) -> ByteTokenizer:
    """The tokenizer that a data entry names, or one trained on ``train_parts``; written to
    ``path``, where a killed run of the same origin may have left it. Raises UserError.
    """
    if data.tokenizer is not None:
        try:
            adopted = adopt(Path(data.tokenizer), data.end_of_text)
        except UserError as error:
            raise UserError(f"{key}.tokenizer: {error}") from None
        write_tokenizer(adopted.tokenizer, path)
        return adopted
    assert data.vocab_size is not None
    if path.exists():
        return ByteTokenizer(Tokenizer.from_file(str(path)), data.end_of_text)
    print(f"{key}: training a tokenizer", flush=True)
    try:
        sample = shown(f"{key}: text for the tokenizer", training_sample(train_parts))
        trained = train_bpe(sample, data.vocab_size, data.end_of_text)
    except UserError as error:
        raise UserError(f"{key}: {error}") from None
    if trained.vocab_size < data.vocab_size:
        print(f"{key}.vocab_size: {data.vocab_size}, but the text gives {trained.vocab_size}")
    write_tokenizer(trained.tokenizer, path)
    return trained


def shown(name: str, texts: Iterable[bytes]) -> Iterator[bytes]:
    """Pass texts on, and show how much they are."""
    with Bar(desc=name, unit="B", unit_scale=True, leave=False, delay=1) as bar:
        for text in texts:
            yield text
            bar.update(len(text))
    print(f"{name}: {bar.n / 1e6:,.1f} MB; now its most frequent pairs are merged", flush=True)


def training_sample(parts: list[Path]) -> Iterator[bytes]:
    """Text from the start of each part, at most SAMPLE_BYTES in all, in equal shares."""
    left = SAMPLE_BYTES
    for number, part in enumerate(parts):
        share = left // (len(parts) - number)  # what a shorter part left goes to those after it
        for _, text in corpus.documents(part):
            text = text[:share]
            yield text
            share -= len(text)
            left -= len(text)
            if not share:
                break


def train_bpe(texts: Iterable[bytes], vocab_size: int, end_of_text: str) -> ByteTokenizer:
    """A byte-level BPE with GPT-2's pattern; smaller than asked if ``texts`` have too few pairs.
    Of words longer than WORD_BYTES, no pair across a multiple of that length counts.

    Raises UserError if the end of text is a token that text contains.
    """
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.FixedLength(WORD_BYTES)]
    )
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
    tokenizer.pre_tokenizer = words
    return byte_exact(json.loads(tokenizer.to_str()), end_of_text)


def adopt(path: Path, end_of_text: str) -> ByteTokenizer:
    """A user's tokenizer.json, made byte-exact; raises UserError if that is not possible."""
    loaded = read_tokenizer(path)
    ids = loaded.get_vocab().values()
    try:
        if max(ids, default=0) >= LARGEST_VOCABULARY:
            raise UserError(
                f"it has a token with the id {max(ids)}, and a vocabulary has at most "
                f"{LARGEST_VOCABULARY} ids: a model has a row for each, used or not"
            )
        if len(set(ids)) < len(ids):
            raise UserError("two of its tokens have the same id: text would be lost")
        return byte_exact(json.loads(loaded.to_str()), end_of_text)  # which has all keys
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def byte_exact(spec: dict[str, Any], end_of_text: str) -> ByteTokenizer:
    """Make a tokenizer.json byte-exact: leave out what alters text (printed). Raises UserError."""
    model = spec["model"]
    if model["type"] != "BPE":
        raise UserError(f"{model['type']}, not a byte-level BPE: it would not give any bytes back")
    fallback = keep_text(spec)
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name):
            raise UserError(f"model.{name}: {model[name]!r} does not fit a byte-exact tokenizer")
    # Each of the 256 bytes needs a token of its own, or a text may not be spelled
    vocabulary, bytes_ = model["vocab"], byte_tokens(fallback)
    missing = [byte for byte in range(256) if bytes_[byte] not in vocabulary]
    if ordinary_text := [byte for byte in missing if byte not in RARE]:
        raise UserError(
            f"no token for {len(missing)} of the 256 bytes, 0x{ordinary_text[0]:02X} among them"
        )
    if missing:
        print(
            f"tokenizer: {len(missing)} of the 256 bytes have no token; documents with one of "
            "them are left out"
        )
    # Tokens that ordinary text may be cut into: no special or altered token may be among them, or
    # text would be read as that
    ordinary = {*bytes_, *map("".join, model["merges"])}
    if fallback:
        ordinary |= {token for token in vocabulary if len(token) == 1}
        spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] not in bytes_]
    if end_of_text in ordinary:
        raise UserError(f"end_of_text: {end_of_text!r} is a token that text contains")
    for token in spec["added_tokens"]:
        content = token["content"]
        token["lstrip"] = token["rstrip"] = False  # would swallow the space around it
        token["special"] |= content == end_of_text
        same = spelled(content, fallback) == content.encode()
        if content in ordinary and (token["special"] or not same):
            raise UserError(f"{content!r} is an added token, but also a token of ordinary text")
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    # The end of text is a special token that the tokenizer has, or one more if it has none
    if tokenizer.token_to_id(end_of_text) is None:
        special = [token["content"] for token in spec["added_tokens"] if token["special"]]
        if known := [token for token in special if "reserved" not in token]:
            raise UserError(
                f"it has no token {end_of_text!r}: `end_of_text` names the one that starts a "
                f"document, such as {', '.join(map(repr, known[:MAX_TOKENS_NAMED]))}"
            )
        print(f"tokenizer: {end_of_text!r} is added to it, as it has no special token")
    tokenizer.add_special_tokens([end_of_text])
    return ByteTokenizer(tokenizer, end_of_text)


def keep_text(spec: dict[str, Any]) -> bool:
    """Leave out what alters text around the model of a tokenizer.json, and print that. Returns
    whether it writes spaces as ▁ and other characters by byte fallback; otherwise it is byte-level.
    Raises UserError if it is neither.
    """
    model = spec["model"]
    parts = pre_tokenizer_parts(spec["pre_tokenizer"])
    kinds = [part["type"] for part in parts]
    # Which of the two kinds it is: spaces are ▁ by a Metaspace or a normalizer, or there is one
    # ByteLevel pre-tokenizer
    fallback: bool = model["byte_fallback"] and "ByteLevel" not in kinds
    model["byte_fallback"] = fallback
    normalizer = spec["normalizer"] or {"normalizers": []}
    steps = normalizer.get("normalizers", [normalizer])
    kept = [SPACES] if fallback and SPACES in steps else []
    if fallback:
        wanted, other = "Metaspace", "ByteLevel"
    else:
        wanted, other = "ByteLevel", "Metaspace"
    if kinds.count(wanted) + len(kept) != 1 or other in kinds:
        raise UserError(
            "neither a byte-level BPE (one ByteLevel pre-tokenizer) nor one with byte_fallback "
            "and ▁ for spaces: text would be lost"
        )
    for part in parts:
        if part.get("behavior") == "Removed" and part.get("invert"):
            # GPT-4's: only matches of its pattern are kept. The same cuts, without a loss between
            part["behavior"], part["invert"] = "Isolated", False
        if part["type"] not in KEEPS_TEXT or part.get("behavior") == "Removed":
            raise UserError(f"its pre-tokenizer {part['type']} does not keep all of a text")
        if part.get("add_prefix_space"):
            raise UserError("add_prefix_space: true puts a space before each text")
        if part.get("replacement", "▁") != "▁":
            raise UserError(f"its Metaspace writes a space as {part['replacement']!r}, not as ▁")
        if part.get("prepend_scheme", "never") != "never":
            part["prepend_scheme"] = "never"
            print("tokenizer: the space that it puts before a text is left out")
    if left_out := ", ".join(step["type"] for step in steps if step not in kept):
        print(f"tokenizer: its normalizer ({left_out}) is left out: it would alter text")
    spec["normalizer"] = kept[0] if kept else None
    spec["truncation"] = spec["padding"] = None
    spec["post_processor"] = None  # adds tokens
    decoder = WITH_SPACES if fallback else decoders.ByteLevel()
    spec["decoder"] = json.loads(decoder.__getstate__())
    return fallback


def pre_tokenizer_parts(spec: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The members of a sequence of pre-tokenizers; any other pre-tokenizer has itself alone."""
    if spec is None:
        return []
    if spec["type"] != "Sequence":
        return [spec]
    return [part for inner in spec["pretokenizers"] for part in pre_tokenizer_parts(inner)]


def symbol_tokenizer(symbols: Iterable[str], separator: str) -> Tokenizer:
    """A token for each symbol, in order: a BPE without merges, which skips unknown characters."""
    vocabulary = {symbol: i for i, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    if separator:
        assert separator == " "  # which joins tokens where there is no decoder
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer
