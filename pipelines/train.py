"""Stage `train`: one run of the experiment.    python -m pipelines.train <run>

Writes checkpoints/<experiment>/<run>/ (checkpoint, resolved configuration) and
results/<experiment>/<run>/curve.csv. A killed run goes on from its last good checkpoint, kept in
resume/ until the run is evaluated.
"""

import csv
import logging
import os
import shutil
import warnings
from dataclasses import asdict
from pathlib import Path

import lightning as L
import torch
from omegaconf import OmegaConf

from ftmodel.transformer import FreeTransformer
from pipelines import errors
from pipelines.batches import INIT, BatchModule, StepBatches, stream_seed
from pipelines.callbacks import Checkpoints, History, Progress
from pipelines.checkpoint import Card, checkpoint_path, make_card, read_checkpoint, resume_folder
from pipelines.errors import UserError
from pipelines.module import NonFinite, TrainingModule
from pipelines.schema import Experiment, Precision
from pipelines.shards import Shards
from pipelines.stage import alone, argument, load_stage, replace_folder
from pipelines.tracking import Tracking

CHECKPOINT_SECONDS = 20.0
ROWS = 150  # of the training curve, at most


def lightning_precision(wanted: Precision) -> str:
    """Lightning's name for the precision; auto is bf16 on a GPU that has it."""
    gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    bf16 = wanted is Precision.bf16 or (wanted is Precision.auto and gpu)
    return "bf16-mixed" if bf16 else "32-true"


def newest_checkpoint(folder: Path, card: Card) -> Path | None:
    """The newest readable checkpoint of this very run; those of another specification go.

    A damaged one is reported and the one before it taken. Fills in the card's MLflow run.
    """
    for path in sorted(folder.glob("*.ckpt"), reverse=True):
        try:
            found = read_checkpoint(path)[1]
        except UserError as error:
            print(f"{error}; trying the one before it", flush=True)
            continue
        if found.spec_hash == card.spec_hash:
            card.mlflow_run_id = found.mlflow_run_id
            return path
        print(f"{path} belongs to another specification of {card.run_name}: removed", flush=True)
        path.unlink()
    return None


def train(experiment: Experiment, name: str, shards: Shards, curve: Path) -> None:
    run = experiment.runs[name]
    preset = experiment.models[run.model]
    config = experiment.model_config(run)
    steps = experiment.steps(run)
    windows = shards.windows("train", config.context)
    card = make_card(experiment, name, shards)
    folder = resume_folder(experiment.name, name)
    newest = newest_checkpoint(folder, card)
    tracking = Tracking(experiment.name)
    tracking.start(card, experiment, go_on=newest is not None)
    torch.manual_seed(stream_seed(run.seed, INIT))
    model = FreeTransformer(config, shards.metadata.vocab_size)
    batches = StepBatches(
        windows, preset.optim.batch_size, steps, run.seed, latent_bits=config.latent_bits
    )
    history = History(
        tracking,
        card,
        steps,
        every=max(1, -(-steps // ROWS)),
        batch_tokens=preset.optim.batch_size * config.context,
    )
    checkpoints = Checkpoints(folder, CHECKPOINT_SECONDS)
    trainer = L.Trainer(
        devices=1,
        precision=lightning_precision(experiment.compute.precision),  # type: ignore[arg-type]
        max_steps=steps,
        max_epochs=-1,
        callbacks=[
            history,
            Progress(history, name, steps),
            checkpoints,
        ],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=folder,
    )
    try:
        trainer.fit(
            TrainingModule(model, preset.optim, run.kappa_bits, steps),
            datamodule=BatchModule(batches),
            ckpt_path=newest,
            weights_only=True,
        )
        last = checkpoints.save(trainer)
    except BaseException as error:
        tracking.finish("FAILED" if isinstance(error, Exception) else "KILLED")
        if isinstance(error, NonFinite):
            raise UserError(
                f"{name}: the gradient is not finite at step {error.step}, whose batch has the "
                f"windows {error.windows} of the training data; {last_good(folder)}"
            ) from None
        if isinstance(error, OSError):
            raise UserError(f"{folder}: {error.strerror or error}; {last_good(folder)}") from None
        raise
    tracking.finish()
    target = checkpoint_path(experiment.name, name)
    with replace_folder(target.parent) as published:
        link(last, published / target.name)
        resolved = {"experiment": experiment.name, "run": asdict(run), "model": asdict(preset)}
        OmegaConf.save(OmegaConf.create(resolved), published / "config.yaml")
    curve.parent.mkdir(parents=True, exist_ok=True)
    with open(curve, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(history.rows[0]))
        writer.writeheader()
        writer.writerows(history.rows)


def last_good(folder: Path) -> str:
    """Words on the checkpoint that a run which failed leaves behind."""
    kept = sorted(folder.glob("*.ckpt"))
    return f"last good checkpoint: {kept[-1]}" if kept else "no checkpoint was written yet"


def link(source: Path, target: Path) -> None:
    """A second name for a file, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    quiet()
    with alone(resume_folder(experiment.name, name)):
        shards = Shards(Path("data/tokens") / experiment.runs[name].data)
        train(experiment, name, shards, Path("results") / experiment.name / name / "curve.csv")


def quiet() -> None:
    """Silence Lightning's advice on choices that were made on purpose."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*isinstance.*treespec.*",
        ".*ended before the epoch ended.*",
        ".*exists and is not empty.*",
    ):
        warnings.filterwarnings("ignore", message)


if __name__ == "__main__":
    errors.run(main)
