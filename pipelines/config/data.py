"""The entries under ``data`` of an experiment: a process with known likelihood, or text."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast, get_args

from fsspec.utils import glob_translate
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from ftmodel.config import limited
from pipelines.common.file_listing import BUILDERS, compile_exclude
from pipelines.host.errors import UserError, not_one_of

FORMATS = ("text", "jsonl", "parquet")
T = TypeVar("T")


@dataclass
class ProcessData:
    """Sequences of a process of ftmodel/synthetic/__init__.py, each one document."""

    source: str = MISSING  # name of the process
    train_sequences: int = limited(MISSING, at_least=1)  # sequences to train on
    validation_sequences: int = limited(MISSING, at_least=1)  # held-out sequences
    seed: int = limited(0, at_least=0, below=1 << 32)  # seed of the sequences


@dataclass
class Files:
    """Files under a folder: plain text, one document each, JSON Lines or Parquet."""

    source: str = "files"  # always "files"
    root: str = MISSING  # a folder, or `stdlib`: the running Python's standard library
    pattern: str = MISSING  # which files to read, for example `**/*.txt`
    # folders and files to leave out: by name at any depth, or by path below root if it has a slash
    exclude: list[str] = field(default_factory=list)
    # format of these files: text, jsonl or parquet; null: each file's name decides
    format: str | None = None
    text_field: str = "text"  # the field of JSON Lines or Parquet that holds the text
    weight: float = limited(1.0, above=0)  # share of bytes in the mixture, relative to other parts

    def validate(self) -> None:
        check_filled(self, "root", "pattern", "text_field")
        check_pattern("pattern", self.pattern, glob_translate)
        for pattern in self.exclude:
            check_pattern("exclude", pattern, compile_exclude)
        if self.format not in (None, *FORMATS):
            raise ValueError(f"format: {not_one_of(self.format, FORMATS)}")


@dataclass
class Hub:
    """A dataset that `datasets.load_dataset` finds by name, read as a stream."""

    source: str = "hub"  # always "hub"
    # a dataset of the hub, a folder, or a builder: json, parquet, text …
    dataset: str = MISSING
    subset: str | None = None  # configuration of the dataset
    split: str = "train"  # split of the dataset
    revision: str | None = None  # commit, branch or tag of the dataset
    data_files: list[str] = field(default_factory=list)  # files of the dataset; all if empty
    text_field: str = "text"  # the column that holds the text
    weight: float = limited(1.0, above=0)  # share of bytes in the mixture, relative to other parts

    def validate(self) -> None:
        given = (name for name in ("subset", "revision") if getattr(self, name) is not None)
        check_filled(self, "dataset", "split", "text_field", *given)
        if self.dataset in BUILDERS and not self.data_files:
            raise ValueError(f"data_files: empty, but {self.dataset} is a builder and reads files")


@dataclass
class Distributions:
    """Files of the installed Python packages, in an even order: see common/file_listing.py."""

    source: str = "distributions"  # always "distributions"
    pins: str = "constraints.txt"  # file of lines name==version; no other package is read
    leave_out: list[str] = field(default_factory=list)  # names of pinned packages to leave out
    pattern: str = "**/*.py"  # which files to read
    # folders and files to leave out: by name at any depth, or by path if it has a slash
    exclude: list[str] = field(default_factory=list)
    weight: float = limited(1.0, above=0)  # share of bytes in the mixture, relative to other parts

    def validate(self) -> None:
        check_filled(self, "pins", "pattern")
        check_pattern("pattern", self.pattern, glob_translate)
        for pattern in self.exclude:
            check_pattern("exclude", pattern, compile_exclude)


Part = Files | Hub | Distributions


@dataclass
class TextData:
    """A mixture of text; a document's hash says whether it is held out."""

    source: str = "text"  # always "text"
    parts: dict[str, Any] = field(default_factory=dict)  # the sources of the text, by name
    validation_share: float = limited(MISSING, above=0, below=1)  # share of held-out documents
    # vocabulary of a byte-level BPE to train on the training part; null: tokenizer names one
    vocab_size: int | None = limited(
        None, "256 bytes and end of text are tokens", at_least=257, at_most=1 << 17
    )
    tokenizer: str | None = None  # path of a tokenizer.json; null: one is trained
    end_of_text: str = "<|endoftext|>"  # the special token with which documents begin
    # cap on the corpus in bytes; the document that reaches it is the last one; null: no cap
    max_bytes: int | None = limited(None, "null takes all", at_least=1)
    deduplicate: bool = True  # keep only the first of equal documents
    seed: int = limited(0, at_least=0, below=1 << 32)  # seed of the split

    def validate(self) -> None:
        if not self.parts:
            raise ValueError("parts: empty; give at least one source of text")
        if (self.vocab_size is None) == (self.tokenizer is None):
            both = "neither is given" if self.tokenizer is None else "both are given"
            raise ValueError(
                f"vocab_size: give it, to train a tokenizer, or `tokenizer`, to name one; {both}"
            )
        check_filled(self, "end_of_text", *([] if self.tokenizer is None else ["tokenizer"]))
        if len(self.end_of_text) == 1:
            raise ValueError(
                f"end_of_text: {self.end_of_text!r} is a single character, which text contains"
            )


Data = ProcessData | TextData
KINDS: dict[str, type[Part]] = {kind.source: kind for kind in get_args(Part)}


def sources() -> dict[str, type[Data]]:
    """The dataclass of a data entry, by its ``source``."""
    from ftmodel.synthetic import PROCESSES  # imports torch: workers need no names

    return {**dict.fromkeys(PROCESSES, ProcessData), "text": TextData}


def check_pattern(name: str, pattern: str, compiled: Callable[[str], str]) -> None:
    """Raise ValueError unless it can match a path below root, written as `a/b.txt`."""
    if pattern.startswith("/") or {"", ".", ".."} & set(pattern.rstrip("/").split("/")):
        raise ValueError(f"{name}: {pattern!r} matches nothing; paths are below root, as a/b.txt")
    try:
        re.compile(compiled(pattern))
    except (ValueError, re.error) as error:
        raise ValueError(f"{name}: {pattern}: {error}") from None


def check_filled(entry: Any, *names: str) -> None:
    for name in names:
        if not getattr(entry, name):
            raise ValueError(f"{name}: empty")


@cache  # a merge copies it
def structured(kind: type) -> Any:
    return OmegaConf.structured(kind)


def merge_data(source: str, key: str, entry: Any) -> Data:
    """A data entry, typed by its ``source``; raises UserError naming file and dotted key."""
    data: Data = of_its_kind(source, f"{key}.", entry, sources())
    if isinstance(data, TextData):
        data.parts = {
            name: of_its_kind(source, f"{key}.parts.{name}.", part, KINDS)
            for name, part in entry.get("parts", {}).items()
        }
    return data


def of_its_kind(source: str, prefix: str, entry: Any, kinds: dict[str, Any]) -> Any:
    if not isinstance(entry, DictConfig) or entry.get("source") not in kinds:
        given = str(entry.get("source") if isinstance(entry, DictConfig) else entry)
        raise UserError(f"{source}: {prefix}source: {not_one_of(given, sorted(kinds))}")
    return typed(source, prefix, entry, kinds[entry.source])


def typed(source: str, prefix: str, entry: Any, kind: type[T]) -> T:
    """Settings as a dataclass; raises UserError naming file and dotted key (after ``prefix``)."""
    try:
        merged = OmegaConf.merge(structured(kind), entry)  # type: ignore[arg-type]  # hashable
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise UserError(f"{source}: {prefix}{missing[0]} is missing")
        return cast(T, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        key = prefix if error.full_key else prefix and f"{prefix.removesuffix('.')}: "
        raise UserError(f"{source}: {key}{keyed(error)}") from None


def keyed(error: OmegaConfBaseException) -> str:
    """The first line of OmegaConf's message, after the dotted key that it is about; of a key that
    does not exist, those that do.
    """
    words = str(error).splitlines()[0]
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.parent_node:
        words = not_one_of(str(error.key), map(str, error.parent_node))
    elif found := re.match(r"Invalid value '(.*)', expected one of \[(.*)\]$", words):
        words = not_one_of(found[1], found[2].split(", "))
    return f"{dotted(error.full_key)}: {words}" if error.full_key else words


def dotted(key: str) -> str:
    """Rewrite expectation[0].arm as expectation.0.arm."""
    return re.sub(r"\[(\d+)\]", r".\1", key)
