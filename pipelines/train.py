"""Stage `train`: one run of the experiment.    python -m pipelines.train <run>

Writes checkpoints/<experiment>/<run>/ (checkpoint, resolved configuration) and
results/<experiment>/<run>/curve.csv. A killed run goes on from its last checkpoint, kept in
resume/ until the run is evaluated.
"""

import csv
import logging
import os
import shutil
import warnings
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import OmegaConf

from ftmodel.transformer import FreeTransformer
from pipelines import errors
from pipelines.batches import INIT, BatchModule, StepBatches, stream_seed
from pipelines.callbacks import History, Progress
from pipelines.checkpoint import Card, checkpoint_path, make_card, read_checkpoint, resume_path
from pipelines.errors import UserError
from pipelines.module import TrainingModule
from pipelines.schema import Experiment, Precision
from pipelines.shards import Shards
from pipelines.stage import alone, argument, load_stage, replace_folder
from pipelines.tracking import Tracking

CHECKPOINT_EVERY = timedelta(seconds=20)
ROWS = 150  # of the training curve, at most


def lightning_precision(wanted: Precision) -> str:
    """Lightning's name for the precision; auto is bf16 on a GPU that has it."""
    gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    bf16 = wanted is Precision.bf16 or (wanted is Precision.auto and gpu)
    return "bf16-mixed" if bf16 else "32-true"


def resumable(path: Path, card: Card) -> bool:
    """Whether a checkpoint of this very run is there; one of another specification is removed."""
    if not path.exists():
        return False
    try:
        found = read_checkpoint(path)[1]
    except UserError as error:
        print(f"{error}\n{card.run_name}: starting from the first step")
    else:
        if found.spec_hash == card.spec_hash:
            card.mlflow_run_id = found.mlflow_run_id
            return True
        print(f"{path} belongs to another specification of {card.run_name}; starting anew")
    path.unlink()
    return False


def train(experiment: Experiment, name: str, shards: Shards, curve: Path) -> None:
    run = experiment.runs[name]
    preset = experiment.models[run.model]
    config = experiment.model_config(run)
    steps = experiment.steps(run)
    windows = shards.windows("train", config.context)
    card = make_card(experiment, name, shards)
    path = resume_path(experiment.name, name)
    resume = resumable(path, card)
    tracking = Tracking(experiment.name)
    tracking.start(card, experiment)
    torch.manual_seed(stream_seed(run.seed, INIT))
    model = FreeTransformer(config, shards.metadata.vocab_size)
    batches = StepBatches(
        windows, preset.optim.batch_size, steps, run.seed, latent_bits=config.latent_bits
    )
    history = History(
        tracking,
        card,
        every=max(1, -(-steps // ROWS)),
        batch_tokens=preset.optim.batch_size * config.context,
    )
    trainer = L.Trainer(
        devices=1,
        precision=lightning_precision(experiment.compute.precision),  # type: ignore[arg-type]
        max_steps=steps,
        max_epochs=-1,
        callbacks=[
            history,
            Progress(history, name, steps),
            ModelCheckpoint(
                dirpath=path.parent,
                filename=path.stem,
                train_time_interval=CHECKPOINT_EVERY,
                enable_version_counter=False,
            ),
        ],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=path.parent,
    )
    try:
        trainer.fit(
            TrainingModule(model, preset.optim, run.kappa_bits, steps),
            datamodule=BatchModule(batches),
            ckpt_path=path if resume else None,
            weights_only=True,
        )
    except BaseException:
        tracking.finish("KILLED")
        raise
    trainer.save_checkpoint(path)
    tracking.finish()
    with replace_folder(checkpoint_path(experiment.name, name).parent) as folder:
        link(path, folder / path.name)
        resolved = {"experiment": experiment.name, "run": asdict(run), "model": asdict(preset)}
        OmegaConf.save(OmegaConf.create(resolved), folder / "config.yaml")
    curve.parent.mkdir(parents=True, exist_ok=True)
    with open(curve, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(history.rows[0]))
        writer.writeheader()
        writer.writerows(history.rows)


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
    with alone(resume_path(experiment.name, name).parent):
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
