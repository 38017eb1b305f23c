"""The loader beside training: the smallest preset that the quickstart trains, by `pipelines.train`.

training   the trainer of stage train, with the time of each part by Lightning's profiler
loader     the same batches, through the same DataLoader, with nothing done to them
"""

from contextlib import chdir
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter
from types import SimpleNamespace

from lightning.pytorch.profilers import SimpleProfiler

from perf.measure import Figure, figure, ratio
from pipelines.artifacts.paths import resume_folder, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
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
    batch = experiment.models[MODEL].optim.batch_size
    config = experiment.model_config(experiment.runs[run])
    windows = Shards(tokens_folder(DATA)).windows("train", config.context)
    module = BatchModule(StepBatches(windows, batch, steps, 0, config.latent_bits))
    module.trainer = SimpleNamespace(global_step=0)
    start = perf_counter()
    for _ in module.train_dataloader():
        pass
    return steps * batch * config.context / (perf_counter() - start)


def measure(turns: int, quick: bool) -> list[Figure]:
    figures = []
    with TemporaryDirectory() as folder:
        project = Project(Path(folder))
        project.ok(
            *("python", "-m", "pipelines.compose", "experiment=quickstart"),
            *(f"data.{DATA}.train_sequences=8000", f"data.{DATA}.validation_sequences=64"),
        )
        for stage in ("data", "tokenize"):
            project.ok("python", "-m", f"pipelines.{stage}", DATA)
        with chdir(folder):
            for arm, (run, bits, steps) in list(ARMS.items())[: 2 if quick else None]:
                experiment = experiment_of(run, bits, 2 if quick else steps)
                found = [
                    (*trained(experiment, run), loaded(experiment, run, 20 if quick else 500))
                    for _ in range(turns + 1)
                ]
                rates, shares, loads = zip(*found[1:], strict=True)
                at, percent = f"{MODEL}, {arm}", [100 * share for share in shares]
                waits = f"{at}: share of training that waits for the loader"
                figures += [
                    figure(f"{at}: training", rates, "tokens/s"),
                    figure(f"{at}: loader", loads, "tokens/s"),
                    ratio(f"{at}: loader ÷ training", loads, rates, at_least=50),
                    figure(waits, percent, "%", at_most=2),
                ]
    return figures
