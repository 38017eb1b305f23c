"""Training as one worker sees it: alone in its process, or one of several that share each batch."""

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import lightning as L
import torch

from ftmodel.model.transformer import FreeTransformer
from pipelines.artifacts.paths import resume_folder, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose, stream_seed
from pipelines.config.schema import Experiment, Precision
from pipelines.tracking.run import Tracking
from pipelines.train.core.acceleration import speed_up
from pipelines.train.core.batches import BatchModule, Share, StepBatches
from pipelines.train.core.callbacks import Checkpoints, CompileTime, History, Progress
from pipelines.train.core.checkpoint_io import WholeFiles
from pipelines.train.core.module import NonFinite, TrainingModule
from pipelines.train.core.segments import Leg, Start, find_start, legs

CHECKPOINT_SECONDS = 20.0
ROWS = 150  # of the training curve, at most


@dataclass
class Place:
    """A worker's number among all workers, and what Lightning's Trainer must know of them."""

    worker: int = 0
    workers: int = 1
    trainer: dict[str, Any] = field(default_factory=lambda: {"devices": 1})
    plugins: list[Any] = field(default_factory=list)


def lightning_precision(wanted: Precision) -> str:
    """Lightning's name for the precision; auto is bf16 on a GPU that has it."""
    gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    bf16 = wanted is Precision.bf16 or (wanted is Precision.auto and gpu)
    return "bf16-mixed" if bf16 else "32-true"


Watch = Callable[[dict[str, float]], None]


def fit(experiment: Experiment, name: str, place: Place, watch: Watch | None = None) -> None:
    """Train a run to its end, leg by leg, in this process; see fit_leg."""
    ended = False
    while not ended:
        start = find_start(experiment, name)
        fit_leg(experiment, name, place, start, watch)
        ended = start.leg.last


def fit_leg(
    experiment: Experiment, name: str, place: Place, start: Start, watch: Watch | None = None
) -> None:
    """Train a leg of a run to its end; its final checkpoint, or weights, lie in resume/.

    Worker 0 alone shows progress and keeps the MLflow record. Each worker calls ``watch`` with
    every new row of the training curve (see History).
    Raises UserError for a loss that is not finite and for a disk that takes no checkpoint.
    """
    quiet()
    run, compute = experiment.runs[name], experiment.compute
    preset, config = experiment.models[run.model], experiment.model_config(run)
    steps = experiment.steps(run)
    shards = Shards(tokens_folder(run.data))
    folder = resume_folder(experiment.name, name)
    card, leg, newest = start.card, start.leg, start.checkpoint
    others = [other for other in legs(experiment, run) if other != leg]
    shown = f"{name} to {leg.budget.listed:,} tokens" if others else name
    tracking = None
    if place.worker == 0:
        check_writable(folder)
        tracking = Tracking(experiment.name)
        tracking.start(card, experiment, go_on=newest is not None)
        if newest:
            say(f"{shown}: going on from step {int(newest.stem)}")
    torch.manual_seed(stream_seed(run.seed, Purpose.WEIGHTS))
    model = FreeTransformer(config, shards.metadata.vocab_size)
    elements = run.tokens * config.d_model * config.n_layers
    compiled = speed_up(model, compute, elements / place.workers)
    batches = StepBatches(
        shards.windows("train", config.context),
        preset.optim.batch_size,
        steps,
        run.seed,
        config.latent_bits,
        Share(place.worker, place.workers, compute.accumulate),
    )
    history = History(
        tracking,
        card,
        steps,
        leg,
        ends={leg.steps, leg.trunk, *(other.trunk for other in others)},
        every=max(1, -(-steps // ROWS)),
        batch_tokens=preset.optim.batch_size * config.context,
        watch=watch,
    )
    trainer = L.Trainer(
        **place.trainer,
        plugins=[WholeFiles(), *place.plugins],
        precision=lightning_precision(compute.precision),  # type: ignore[arg-type]
        max_steps=leg.steps,
        max_epochs=-1,
        accumulate_grad_batches=compute.accumulate,
        use_distributed_sampler=False,
        callbacks=[
            history,
            *([Progress(history, shown, leg.steps)] if tracking else []),
            *([CompileTime(tracking, shown)] if tracking and compiled else []),
            Checkpoints(folder, CHECKPOINT_SECONDS, leg, history),
        ],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=folder,
    )
    try:
        trainer.fit(
            TrainingModule(
                model,
                preset.optim,
                run.kappa_bits,
                leg.steps,
                end_of_text=shards.metadata.end_of_text,
                kappa_warmup=run.kappa_warmup_steps,
            ),
            datamodule=BatchModule(batches),
            ckpt_path=newest,
            weights_only=True,
        )
    except BaseException as error:
        if tracking:
            with suppress(UserError):  # the disk may be full: ``error`` says more
                tracking.finish("FAILED" if isinstance(error, Exception) else "KILLED")
        if isinstance(error, NonFinite):
            raise UserError(
                f"{name}: the gradient is not finite at step {error.step}, whose batch has the "
                f"windows {error.windows} of the training data; {last_good(folder, leg)}"
            ) from None
        if isinstance(error, torch.OutOfMemoryError):
            raise UserError(
                f"{name}: the GPU's memory is full; raise compute.accumulate, turn on "
                "compute.activation_checkpointing, or share the model out with compute.strategy: "
                f"fsdp ({str(error).partition('. ')[0]})"
            ) from None
        if isinstance(error, OSError):
            raise UserError(
                f"{folder}: {error.strerror or error}; {last_good(folder, leg)}"
            ) from None
        raise
    if tracking:
        tracking.finish("FINISHED" if leg.last else "RUNNING")


def check_writable(folder: Path) -> None:
    """Raise UserError if a checkpoint could not be written later."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from None


def last_good(folder: Path, leg: Leg) -> str:
    """Words on the checkpoint that a run which failed leaves behind."""
    found = (leg.folder(folder, step).glob("*.ckpt") for step in (leg.trunk, leg.steps))
    kept = sorted(chain(*found), key=lambda path: path.name)
    return f"last good checkpoint: {kept[-1]}" if kept else "no checkpoint was written yet"


def quiet() -> None:
    """Silence Lightning's advice on choices that were made on purpose."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*isinstance.*treespec.*",
        ".*ended before the epoch ended.*",
        ".*exists and is not empty.*",
        ".*code generation for complex operators.*",  # RoPE's table: blocks only look at it
    ):
        warnings.filterwarnings("ignore", message)
