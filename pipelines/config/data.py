"""The entries under ``data`` of an experiment: a process with known likelihood, or text."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast, get_args

from fsspec.utils import glob_translate
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ftmodel.model.limits import limited
from ftmodel.synthetic.registry import PROCESSES
from pipelines.common.errors import UserError
from pipelines.common.file_listing import BUILDERS, compile_exclude

FORMATS = ("text", "jsonl", "parquet")
T = TypeVar("T")


@dataclass
class ProcessData:
    """Sequences of a process of ftmodel/synthetic/registry.py, each one document."""

    source: str = MISSING  # the process
    train_sequences: int = limited(MISSING, at_least=1)
    validation_sequences: int = limited(MISSING, at_least=1)
    seed: int = limited(0, at_least=0, below=1 << 32)


@dataclass
class Files:
    """Files under a folder: plain text, one document each, JSON Lines or Parquet."""

    source: str = "files"
    root: str = MISSING  # a folder, or `stdlib`: the running Python's standard library
    pattern: str = MISSING  # which files, as `**/*.txt`
    # folders and files left out: by name at any depth, or by path below root if it has a slash
    exclude: list[str] = field(default_factory=list)
    format: str | None = None  # of all these files: text, jsonl or parquet; null goes by their name
    text_field: str = "text"  # of JSON Lines and Parquet
    weight: float = limited(1.0, above=0)

    def validate(self) -> None:
        check_filled(self, "root", "pattern", "text_field")
        check_pattern("pattern", self.pattern, glob_translate)
        for pattern in self.exclude:
            check_pattern("exclude", pattern, compile_exclude)
        if self.format not in (None, *FORMATS):
            raise ValueError(f"format: {self.format} is not one of {', '.join(FORMATS)}")


@dataclass
class Hub:
    """A dataset that `datasets.load_dataset` finds by name, read as a stream."""

    source: str = "hub"
    dataset: str = MISSING  # on the hub, or a folder, or a builder: json, parquet, text …
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    data_files: list[str] = field(default_factory=list)  # of the dataset; all if empty
    text_field: str = "text"
    weight: float = limited(1.0, above=0)

    def validate(self) -> None:
        check_filled(self, "dataset", "split", "text_field")
        if self.dataset in BUILDERS and not self.data_files:
            raise ValueError(f"data_files: empty, but {self.dataset} is a builder and reads files")


@dataclass
class Distributions:
    """Files of the installed Python packages, in an even order: see common/distributions.py."""

    source: str = "distributions"
    pins: str = "constraints.txt"  # lines name==version; what else is installed is not read
    leave_out: list[str] = field(default_factory=list)  # of the pinned distributions, by name
    pattern: str = "**/*.py"
    exclude: list[str] = field(default_factory=list)  # files and folders, as of `files`
    weight: float = limited(1.0, above=0)

    def validate(self) -> None:
        check_filled(self, "pins", "pattern")
        check_pattern("pattern", self.pattern, glob_translate)
        for pattern in self.exclude:
            check_pattern("exclude", pattern, compile_exclude)


Part = Files | Hub | Distributions


@dataclass
class TextData:
    """A mixture of text; a document's hash says whether it is held out."""

    source: str = "text"
    parts: dict[str, Any] = field(default_factory=dict)  # weights are shares of bytes
    validation_share: float = limited(MISSING, above=0, below=1)  # of the documents
    # of a byte-level BPE trained on the training part, up to the paper's, or
    vocab_size: int | None = limited(
        None, "256 bytes and end of text are tokens", at_least=257, at_most=1 << 17
    )
    tokenizer: str | None = None  # path of a tokenizer.json
    end_of_text: str = "<|endoftext|>"  # the token that starts a document
    # the document that reaches it is the last one; null: all
    max_bytes: int | None = limited(None, "null takes all", at_least=1)
    deduplicate: bool = True  # of equal documents, keep the first
    seed: int = limited(0, at_least=0, below=1 << 32)  # of the split

    def validate(self) -> None:
        if not self.parts:
            raise ValueError("parts: empty; text comes from one source at least")
        if (self.vocab_size is None) == (self.tokenizer is None):
            both = "both are given" if self.tokenizer else "neither is given"
            raise ValueError(
                f"vocab_size: a tokenizer is trained, or `tokenizer` names one; {both}"
            )
        check_filled(self, "end_of_text", *([] if self.tokenizer is None else ["tokenizer"]))
        if len(self.end_of_text) == 1:
            raise ValueError(
                f"end_of_text: {self.end_of_text!r} is a single character, of which text is made"
            )


Data = ProcessData | TextData
KINDS: dict[str, type[Part]] = {kind.source: kind for kind in get_args(Part)}
SOURCES: dict[str, type[Data]] = {**dict.fromkeys(PROCESSES, ProcessData), "text": TextData}


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
    data: Data = of_its_kind(source, f"{key}.", entry, SOURCES)
    if isinstance(data, TextData):
        data.parts = {
            name: of_its_kind(source, f"{key}.parts.{name}.", part, KINDS)
            for name, part in entry.get("parts", {}).items()
        }
    return data


def of_its_kind(source: str, prefix: str, entry: Any, kinds: dict[str, Any]) -> Any:
    if not isinstance(entry, DictConfig) or entry.get("source") not in kinds:
        raise UserError(f"{source}: {prefix}source: not one of {', '.join(sorted(kinds))}")
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
    """The first line of OmegaConf's message, after the dotted key that it is about."""
    words = str(error).splitlines()[0]
    return f"{dotted(error.full_key)}: {words}" if error.full_key else words


def dotted(key: str) -> str:
    """expectation[0].arm as expectation.0.arm."""
    return re.sub(r"\[(\d+)\]", r".\1", key)
