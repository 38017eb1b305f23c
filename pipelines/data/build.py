"""Stage `data`: make a corpus (see artifacts/corpus.py).

    python -m pipelines.data target

Text is read source by source (sources/), mixed, freed of duplicates and split (mixture.py). It is
written part by part to data/corpus/<name>.partial, because DVC deletes data/corpus/<name> before
the stage runs. A killed stage continues there (resume.py).
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from json import dumps, loads
from pathlib import Path

import torch

from ftmodel.synthetic.registry import PROCESSES
from pipelines.artifacts.corpus import SPLITS, PartWriter
from pipelines.artifacts.paths import corpus_folder
from pipelines.common import errors
from pipelines.common.arguments import DATASET
from pipelines.common.atomic_files import alone, replace_folder
from pipelines.common.errors import UserError
from pipelines.config.data import ProcessData, TextData
from pipelines.config.frozen import Check, freeze, unchecked
from pipelines.data.mixture import Mixture, Tally, check_mixture
from pipelines.data.resume import PARTS_FOLDER, open_ledger, specification
from pipelines.data.sources import open_source
from pipelines.data.sources.base import Source

SEQUENCES_PER_DRAW = 4096  # of a process
REPEATED_SHARE = 0.01  # of held-out ones among those drawn, above which they are in training


def process_texts(data: ProcessData) -> dict[str, Iterator[str]]:
    """Sequences of a process by split; no held-out one occurs in training, unless more than 1 % of
    what is drawn does.

    Dropping held-out sequences from training shifts its distribution towards rare ones, which is
    negligible where sequences hardly ever repeat. Where they do repeat, memorizing them is learning
    the process, and both splits stay as they were drawn.
    """
    process = PROCESSES[data.source]
    generator = torch.Generator().manual_seed(data.seed)
    rows = process.sample(data.validation_sequences, generator)
    held_out = [process.text(row) for row in rows]

    def draw() -> list[str]:
        return [process.text(row) for row in process.sample(SEQUENCES_PER_DRAW, generator)]

    def training() -> Iterator[str]:
        known, drawn = set(held_out), draw()
        if sum(text in known for text in drawn) > REPEATED_SHARE * SEQUENCES_PER_DRAW:
            known = set()
        while True:
            yield from (text for text in drawn if text not in known)
            drawn = draw()

    return {"train": islice(training(), data.train_sequences), "validation": iter(held_out)}


def make_process(name: str, data: ProcessData, target: Path, verify: Check = unchecked) -> None:
    with replace_folder(target) as folder:
        for split, texts in process_texts(data).items():
            writer = PartWriter(folder, split)
            for count, text in enumerate(texts, 1):
                writer.add(str(count - 1), text.encode())
            writer.close()
            print(f"{name} {split}: {count:,} sequences")
        verify()


def open_sources(key: str, data: TextData) -> dict[str, Source]:
    return {part: open_source(f"{key}.parts.{part}", spec) for part, spec in data.parts.items()}


def make_parts(name: str, data: TextData, work: Path) -> Tally:
    """Write the corpus to ``work``/parts, from where an earlier try has come to."""
    key = f"data.{name}"
    sources = open_sources(key, data)
    spec = specification(data)
    work.parent.mkdir(parents=True, exist_ok=True)
    with closing(open_ledger(name, work, spec, sources)) as ledger:
        writers = {split: PartWriter(work / PARTS_FOLDER, split) for split in SPLITS}
        tally = Mixture(name, data, sources, writers, ledger, spec).read()
    check_mixture(key, data, tally)
    for writer in writers.values():
        writer.close()
    positions = {part: source.position() for part, source in sources.items()}
    (work / "done.json").write_text(
        dumps({"specification": spec, "positions": positions}), encoding="utf-8"
    )
    return tally


def make_text(name: str, data: TextData, target: Path, verify: Check = unchecked) -> None:
    work, done = target.with_name(target.name + ".partial"), target.with_name(target.name + ".done")
    with alone(target) as waited:
        try:
            if waited and target.exists() and is_done(name, data, done):
                verify()
                print(f"{name}: the other process has made it")
                return
            tally = make_parts(name, data, work)
        except OSError as error:
            if error.errno not in errors.UNWRITABLE:
                raise
            raise UserError(
                f"{work}: {error.strerror}; finished parts are kept, and the same command continues"
            ) from None
        verify()
        shutil.rmtree(target, ignore_errors=True)
        (work / PARTS_FOLDER).rename(target)
        (work / "done.json").replace(done)
        shutil.rmtree(work)
    for line in tally.lines(data):
        print(f"{name} {line}")


def is_done(name: str, data: TextData, done: Path) -> bool:
    """Whether the finished corpus is the one that would be made now."""
    try:
        state = loads(done.read_bytes())
        sources = open_sources(f"data.{name}", data)
        return state["specification"] == specification(data) and all(
            source.fits(state["positions"][part]) for part, source in sources.items()
        )
    except (FileNotFoundError, ValueError, KeyError):
        return False


@DATASET
def main(name: str) -> None:
    frozen = freeze("data", name)
    data, target = frozen.experiment.data[name], corpus_folder(name)
    if isinstance(data, ProcessData):
        make_process(name, data, target, partial(frozen.check, "its sequences are drawn again"))
    else:
        outcome = f"what is finished stays in {target}.partial"
        make_text(name, data, target, partial(frozen.check, outcome))
