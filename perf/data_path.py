"""The loader beside training, and its start beside the size of the corpus.

training   pipelines.train on the smallest preset that the quickstart trains, with the time of each
           part by Lightning's profiler
loader     the same batches, through the same DataLoader, with nothing done to them
start      from opening the data set to the first batch. Token files of the larger corpus have
           holes in place of zeros, so that no disk is in these times: headers, checksums and the
           order of the windows are as in any other
"""

from contextlib import chdir
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter
from types import SimpleNamespace
from zlib import crc32

from lightning.pytorch.profilers import SimpleProfiler

from perf.measure import Figure, figure, in_turns, ratio
from pipelines.artifacts.paths import resume_folder
from pipelines.artifacts.tokens.shards import Metadata, Shard, Shards, Split, write_metadata
from pipelines.artifacts.tokens.token_file import BLOCK, CHECK, HEADER, MAGIC, VERSION, Header
from pipelines.config.load import load_experiment
from pipelines.config.schema import Experiment
from pipelines.train.core.batches import BatchModule, StepBatches
from pipelines.train.core.trainer import Process, fit
from tests.support.project_copy import Project

DATA, MODEL = "target", "target_small"
# run, latent bits, and steps of training in a turn
ARMS = {
    "baseline": ("baseline", 8, 60),
    "H = 8": ("free_k1", 8, 60),
    "H = 16": ("free_k1", 16, 8),
}
EPOCH, NEXT = "run_training_epoch", "[_TrainingEpochLoop].train_dataloader_next"


def experiment_of(run: str, bits: int, steps: int) -> Experiment:
    experiment = load_experiment()
    architecture = experiment.models[MODEL].architecture
    architecture.latent_bits = bits
    optim = experiment.models[MODEL].optim
    experiment.runs[run].tokens = steps * optim.batch_size * architecture.context
    optim.warmup_steps = 1
    return experiment


def trained(experiment: Experiment, run: str) -> tuple[float, float]:
    """Tokens per second of training, and the share of its time that waits for the loader."""
    rmtree(resume_folder(experiment.name, run), ignore_errors=True)
    profiler = SimpleProfiler()
    fit(experiment, run, Process(trainer={"devices": 1, "profiler": profiler}))
    spent = {
        name.rpartition("|")[2]: sum(seconds)
        for name, seconds in profiler.recorded_durations.items()
    }
    tokens = experiment.runs[run].tokens
    return tokens / spent[EPOCH], spent[NEXT] / spent[EPOCH]


def loaded(experiment: Experiment, run: str, steps: int) -> float:
    """Tokens per second of the loader alone."""
    preset = experiment.models[MODEL]
    config = experiment.model_config(experiment.runs[run])
    windows = Shards(Path("data/tokens") / DATA).windows("train", config.context)
    module = BatchModule(
        StepBatches(windows, preset.optim.batch_size, steps, 0, config.latent_bits)
    )
    module.trainer = SimpleNamespace(global_step=0)
    start = perf_counter()
    for _ in module.train_dataloader():
        pass
    return steps * preset.optim.batch_size * config.context / (perf_counter() - start)


def beside_training(turns: int, quick: bool, folder: Path) -> list[Figure]:
    project = Project(folder)
    project.ok(
        *("python", "-m", "pipelines.compose", "experiment=quickstart"),
        *(f"data.{DATA}.train_sequences=8000", f"data.{DATA}.validation_sequences=64"),
    )
    for stage in ("data", "tokenize"):
        project.ok("python", "-m", f"pipelines.{stage}", DATA)
    figures = []
    with chdir(folder):
        for arm, (run, bits, steps) in list(ARMS.items())[: 2 if quick else None]:
            experiment = experiment_of(run, bits, 2 if quick else steps)
            rates, shares, loads = [], [], []
            for turn in range(turns + 1):
                rate, share = trained(experiment, run)
                load = loaded(experiment, run, 20 if quick else 500)
                if turn:
                    rates, shares, loads = [*rates, rate], [*shares, share], [*loads, load]
            figures += [
                figure(f"{MODEL}, {arm}: training", rates, "tokens/s"),
                figure(f"{MODEL}, {arm}: loader", loads, "tokens/s"),
                ratio(f"{MODEL}, {arm}: loader ÷ training", loads, rates, at_least=50),
                figure(
                    f"{MODEL}, {arm}: share of training that waits for the loader",
                    [100 * share for share in shares],
                    "%",
                    at_most=2,
                ),
            ]
    return figures


def zeros(folder: Path, tokens: int) -> Path:
    """A data set of so many zeros."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    splits = {}
    for split, count in {"train": tokens, "validation": BLOCK}.items():
        whole, left = divmod(count, BLOCK)
        table = CHECK.pack(crc32(bytes(2 * BLOCK))) * whole
        table += CHECK.pack(crc32(bytes(2 * left))) * bool(left)
        header = Header(
            *(MAGIC, VERSION, 2, count, 1, count, 0, BLOCK),
            *(bytes(32), bytes(32), crc32(table)),
        )
        path = folder / f"{split}-00000.tokens"
        with open(path, "wb") as file:
            file.write(header.pack())
            file.seek(HEADER + 2 * count)
            file.write(table)
        splits[split] = Split(count, 1, count, [Shard.of(path, header)])
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    write_metadata(folder, Metadata(1000, "uint16", None, 0, digest, splits))
    return folder


def start_up(turns: int, quick: bool, folder: Path) -> list[Figure]:
    # million tokens; the second is the most that is checked at once
    sizes = (1, 2) if quick else (1, 30, 1000, 100_000)
    folders = {f"{size:,} M tokens": zeros(folder / str(size), size * 10**6) for size in sizes}

    def first(shards: Path) -> None:
        windows = Shards(shards).windows("train", 64)
        batch = StepBatches(windows, 64, 10**6, 0, 16)[0]
        assert batch["tokens"].shape == (64, 65)

    seconds = in_turns({name: lambda f=f: first(f) for name, f in folders.items()}, turns)
    return [
        figure(f"start on {name}: first batch", spent, "s", at_most=0.5)
        for name, spent in seconds.items()
    ]


def measure(turns: int, quick: bool) -> list[Figure]:
    with TemporaryDirectory() as scratch:
        return [
            *beside_training(turns, quick, Path(scratch) / "project"),
            *start_up(turns, quick, Path(scratch) / "zeros"),
        ]
