"""Stage tokenize beside `tokenizers` alone.    python -m benchmarks.tokenize_speed

Both encode the same documents, the standard library's Python files, in the same run, in turns:

  stage       Parquet parts → ids → token files with checksums, flushed to the disk, in as many
              processes as there are cores; their start is included
  tokenizers  encode_batch_fast over all documents, decoded and in memory, on as many threads;
              ids are not asked for

Prints MB/s of each (10^6 bytes of text), the ratio of each pair of turns, and median and range;
then the speed of the search for overlap with held-out text, the first part, in the other parts.
"""

import argparse
import os
import sysconfig
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from tokenizers import Tokenizer

from pipelines import corpus
from pipelines.encode import Task, tokenize_parts
from pipelines.overlap import find_overlap
from pipelines.token_file import TokenFile
from pipelines.tokenize import training_sample
from pipelines.tokenizer import ByteTokenizer, stretches, train_bpe

END = "<|endoftext|>"


def make_corpus(folder: Path, part: int, copies: int) -> list[Path]:
    """Parts of ``part`` bytes of the standard library, as often as asked."""
    folder.mkdir()
    corpus.PART_BYTES = part
    writer = corpus.PartWriter(folder, "train")
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")) * copies:
        if "site-packages" not in path.parts:
            writer.add(path.name, path.read_bytes())
    writer.close()
    return corpus.parts(folder, "train")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vocabulary", type=int, default=32_768)
    parser.add_argument("--part", type=int, default=4 << 20, help="bytes of a corpus part")
    parser.add_argument("--copies", type=int, default=2, help="of the standard library")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        folder = Path(scratch)
        parts = make_corpus(folder / "corpus", options.part, options.copies)
        path = folder / "tokenizer.json"
        trained = train_bpe(training_sample(parts), options.vocabulary, END)
        trained.tokenizer.save(str(path))
        texts = [text for part in parts for _, text in corpus.documents(part)]
        valid = [s for text in texts for s in stretches(text) if isinstance(s, str)]
        size = sum(map(len, texts)) / 1e6
        print(f"{size:.1f} MB in {len(texts)} documents, {len(parts)} parts; {cores} cores")

        def stage() -> None:
            tasks = [
                Task(part, folder / f"{part.stem}.tokens", path, END, None, "uint16", bytes(32))
                for part in parts
            ]
            written = sum(header.text_bytes for _, header in tokenize_parts(tasks, cores))
            assert written == sum(map(len, texts))

        def alone() -> None:
            ByteTokenizer(Tokenizer.from_file(str(path)), END).tokenizer.encode_batch_fast(valid)

        speeds: dict[str, list[float]] = {"stage": [], "tokenizers": []}
        for turn in range(options.turns):
            jobs = [("stage", stage), ("tokenizers", alone)]
            for name, job in jobs if turn % 2 else jobs[::-1]:
                start = perf_counter()
                job()
                speeds[name].append(size / (perf_counter() - start))
            print({name: round(values[-1], 2) for name, values in speeds.items()}, flush=True)
        files = [TokenFile(folder / f"{part.stem}.tokens") for part in parts]
        searched = []
        for _ in range(options.turns):
            start = perf_counter()
            find_overlap(
                files[:1], files[1:], trained.end_of_text, trained.vocab_size, threads=cores
            )
            searched.append(sum(map(len, files[1:])) / 1e6 / (perf_counter() - start))
    speeds["ratio"] = [a / b for a, b in zip(*speeds.values(), strict=True)]
    for name, values in speeds.items():
        unit = "" if name == "ratio" else " MB/s"
        print(
            f"{name:11} median {median(values):.2f}{unit}, from {min(values):.2f} to "
            f"{max(values):.2f}"
        )
    print(
        f"overlap     median {median(searched):.1f} million tokens/s, from {min(searched):.1f} to "
        f"{max(searched):.1f}"
    )


if __name__ == "__main__":
    main()
