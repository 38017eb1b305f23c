"""Stage tokenize beside `tokenizers` alone.

Both encode the same documents, the standard library's Python files:

  stage       Parquet parts → ids → token files with checksums, flushed to the disk, in as many
              processes as there are cores; their start is included
  tokenizers  encode_batch_fast over all documents, decoded and in memory, on as many threads;
              ids are not asked for

MB are 10^6 bytes of text.
"""

import sysconfig
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

from perf.measure import Figure, figure, in_turns, ratio
from pipelines.artifacts import corpus
from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer, stretches
from pipelines.cluster.workers import run_tasks
from pipelines.host.machine import whole_cores
from pipelines.tokenize.encode import Task, tokenize_part
from pipelines.tokenize.vocabulary import train_bpe, training_sample

EOT = "<|endoftext|>"


def measure(turns: int, quick: bool) -> list[Figure]:
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    files = [path for path in library if "site-packages" not in path.parts]
    vocabulary, part, files = (512, 1 << 17, files[:30]) if quick else (32_768, 4 << 20, files * 2)
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        folder = Path(scratch)
        corpus.PART_BYTES = part
        corpus.write_parts(folder, "train", ((file.name, file.read_bytes()) for file in files))
        parts = corpus.parts(folder, "train")
        path = folder / "tokenizer.json"
        train_bpe(training_sample(parts), vocabulary, EOT).tokenizer.save(str(path))
        texts = [text for part in parts for _, text in corpus.documents(part)]
        valid = [s for text in texts for s in stretches(text) if isinstance(s, str)]
        size = sum(map(len, texts))

        def stage() -> None:
            tasks = [
                Task(part, folder / f"{part.stem}.tokens", path, EOT, None, "uint16", "")
                for part in parts
            ]
            written = run_tasks(tokenize_part, tasks, whole_cores())
            assert sum(shard.bytes for _, shard in written) == size

        def alone() -> None:
            ByteTokenizer(Tokenizer.from_file(str(path)), EOT).tokenizer.encode_batch_fast(valid)

        seconds = in_turns({"stage tokenize": stage, "tokenizers alone": alone}, turns)
    speeds = {name: [size / 1e6 / each for each in spent] for name, spent in seconds.items()}
    return [
        *(figure(name, speed, "MB/s") for name, speed in speeds.items()),
        ratio("stage ÷ tokenizers: speed", *speeds.values()),
    ]
