"""Stage `data`: make a corpus (see artifacts/corpus.py)."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from itertools import islice
from json import dumps
from math import inf
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.corpus import write_parts
from pipelines.cluster.workers import run_tasks
from pipelines.config.data import ProcessData, TextData
from pipelines.config.load import Check, freeze, unchecked
from pipelines.data.mixture import (
    Mixture,
    Short,
    Tally,
    check_mixture,
    find_duplicates,
    mix,
    part_files,
    write,
)
from pipelines.data.segments import Stream, load_segment, read_group
from pipelines.data.sources import open_source
from pipelines.host import errors
from pipelines.host.console import Bar
from pipelines.host.errors import UserError
from pipelines.host.files import SPLITS, alone, corpus_folder, replace_folder
from pipelines.host.machine import whole_cores
from pipelines.host.source_code import code_version

SEQUENCES_PER_DRAW = 4096  # of a process
FIRST_BYTES = 1 << 30  # read at first of a mixture that ends with one of its parts
MAX_OTHERS = 3  # unfinished works kept beside the current one
REPEATED_SHARE = 0.01  # of held-out sequences among drawn ones, above which training has them

TextBar = partial(Bar, unit="B", unit_scale=True, delay=1, mininterval=0.5)  # bytes of text


def process_texts(data: ProcessData) -> dict[str, Iterator[str]]:
    """Sequences of a process by split. No held-out one occurs in training, unless they make up more
    than 1 % of what is drawn.

    Dropping held-out sequences from training shifts its distribution towards rare ones, which is
    negligible where sequences hardly ever repeat. Where they do repeat, memorizing them is learning
    the process, and both splits stay as they were drawn.
    """
    process = PROCESSES[data.source]
    generator = torch.Generator().manual_seed(data.seed)
    rows = process.sample(data.validation_sequences, generator)
    held_out = [process.text(row) for row in rows]

    def training() -> Iterator[str]:
        left_out: set[str] | None = None  # not known before the first draw
        while True:
            drawn = [process.text(row) for row in process.sample(SEQUENCES_PER_DRAW, generator)]
            if left_out is None:
                left_out = set(held_out)
                if sum(text in left_out for text in drawn) > REPEATED_SHARE * len(drawn):
                    left_out = set()
            yield from (text for text in drawn if text not in left_out)

    return {"train": islice(training(), data.train_sequences), "validation": iter(held_out)}


def make_process(name: str, data: ProcessData, target: Path, verify: Check = unchecked) -> None:
    with replace_folder(target) as folder:
        for split, texts in process_texts(data).items():
            documents = ((str(number), text.encode()) for number, text in enumerate(texts))
            count = write_parts(folder, split, documents)
            print(f"{name} {split}: {count:,} sequences")
        verify()


def specification(data: TextData) -> str:
    """Hash of everything that decides a corpus, except files and which of them are read."""
    entry = {**asdict(data), "vocab_size": None, "tokenizer": None, "end_of_text": None}
    for part in entry["parts"].values():
        for name in ("pattern", "exclude"):
            part.pop(name, None)
    return sha256(dumps([entry, code_version("data"), pa.__version__]).encode()).hexdigest()


def work_folder(name: str, data: TextData, folder: Path) -> Path:
    """The place in ``folder`` for unfinished work with these settings and this code. The last
    MAX_OTHERS others are kept, in case their settings are asked for again.
    """
    work = folder / specification(data)[:8]
    if folder.exists():
        others = [path for path in folder.iterdir() if path != work]
        others.sort(key=lambda path: path.stat().st_mtime_ns)
        for path in others[:-MAX_OTHERS]:
            shutil.rmtree(path)
        if others and not work.exists():
            kept = ", ".join(map(str, others[-MAX_OTHERS:]))
            print(f"{name}: unfinished work of other settings or code is kept: {kept}", flush=True)
    work.mkdir(parents=True, exist_ok=True)
    os.utime(work)
    return work


def read_mixture(data: TextData, streams: list[Stream], cores: int, bar: Bar) -> Mixture:
    """Read as much of each part as the corpus needs, and decide which documents it has.

    How much that is nobody knows before: duplicates add nothing, and a mixture without a limit ends
    where one of its parts ends. So the goal rises until the mixture is not short any more.
    """
    weights = [part.weight for part in data.parts.values()]
    goal = (data.max_bytes or FIRST_BYTES) / sum(weights)  # bytes for a weight of 1
    if len(weights) == 1 and not data.max_bytes:
        goal = inf
    while True:
        while read_more(streams, [goal * weight for weight in weights], cores, bar):
            pass
        segments = [stream.segments() for stream in streams]
        found = find_duplicates(segments, cores, data.deduplicate)
        try:
            return mix(data, segments, [stream.ended() for stream in streams], found)
        except Short:
            goal *= 1.25 if data.max_bytes else 2.0


def read_more(streams: list[Stream], goals: list[float], cores: int, bar: Bar) -> int:
    """Read what the goals are thought to lack; returns how many segments that gave."""
    count = 0
    pairs = zip(streams, goals, strict=True)
    readings = (reading for stream, goal in pairs for reading in stream.readings(goal))
    for reading, segment in run_tasks(read_group, readings, cores):
        reading.group.segments.append(segment)
        bar.update(segment.bytes)
        count += 1
    return count


def make_parts(name: str, data: TextData, work: Path, cores: int = 1) -> tuple[Tally, Path]:
    """Write the corpus to a folder in ``work``, continuing an earlier try; returns what became of
    the documents, and the folder.
    """
    key = f"data.{name}"
    sources = {part: open_source(f"{key}.parts.{part}", spec) for part, spec in data.parts.items()}
    streams = [Stream(part, source, data, work) for part, source in sources.items()]
    known = [segment for path in work.glob("*.json") if (segment := load_segment(path))]
    if known:
        count = sum(segment.documents for segment in known)
        print(f"{name}: {count:,} documents were read by an earlier try", flush=True)
    sizes = [source.size if source.plain else None for source in sources.values()]
    size = data.max_bytes or (sizes[0] if len(sizes) == 1 else None)
    read_before = sum(segment.bytes for segment in known)
    with TextBar(size, desc=f"{name}: reading", initial=read_before) as bar:
        mixture = read_mixture(data, streams, cores, bar)
    # A try that read other segments writes other parts, so it has another folder
    stems = [segment.stem for part in mixture.segments for segment in part]
    folder = work / f"parts-{sha256(dumps(stems).encode()).hexdigest()[:8]}"
    folder.mkdir(exist_ok=True)
    tally = Tally(np.zeros((2, len(sources), len(SPLITS)), np.int64))
    parts = part_files(mixture, folder, tally)
    with TextBar(mixture.bytes, desc=f"{name}: writing") as bar:
        for _, size in run_tasks(write, parts, cores):
            bar.update(size)
    check_mixture(key, data, tally)
    return tally, folder


def make_text(
    name: str, data: TextData, target: Path, cores: int = 1, verify: Check = unchecked
) -> None:
    """Make a corpus in ``target``, the same for any number of ``cores``; raises UserError."""
    unfinished = target.with_name(f"{target.name}.partial")
    with alone(target):
        try:
            work = work_folder(name, data, unfinished)
            tally, folder = make_parts(name, data, work, cores)
        except OSError as error:
            if error.errno not in errors.UNWRITABLE:
                raise
            raise UserError(
                f"{unfinished}: {error.strerror}; what is finished is kept, and the same command "
                "continues"
            ) from None
        verify()
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
        shutil.rmtree(work)
        if not any(unfinished.iterdir()):
            unfinished.rmdir()
    for line in tally.lines(data):
        print(f"{name} {line}")


def main(name: str) -> None:
    frozen = freeze("data", name)
    data, target = frozen.experiment.data[name], corpus_folder(name)
    if isinstance(data, ProcessData):
        make_process(name, data, target, partial(frozen.check, "its sequences are drawn again"))
    else:
        outcome = f"what is finished stays in {target}.partial"
        make_text(name, data, target, whole_cores(), partial(frozen.check, outcome))
