"""Checkpoints: what a run needs to be resumed, evaluated and told apart from a stale one.

A checkpoint is Lightning's file with one entry of ours, plain data under ``free_transformer``.
Loading never unpickles arbitrary objects (``weights_only=True``).
"""

import pickle
from dataclasses import asdict, dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from ftmodel.config import ModelConfig
from ftmodel.transformer import FreeTransformer
from pipelines.errors import UserError
from pipelines.schema import Experiment
from pipelines.shards import Shards

ENTRY = "free_transformer"
PREFIX = "model."  # of the model's parameters inside the training module
ROOT = Path(__file__).parents[1]
DECISIVE = (  # with the data and the parameters; stage train depends on them in dvc.yaml
    "ftmodel/config.py",
    "ftmodel/layers.py",
    "ftmodel/mapper.py",
    "ftmodel/transformer.py",
    "ftmodel/objective.py",
    "pipelines/shards.py",
    "pipelines/batches.py",
    "pipelines/module.py",
    "pipelines/fit.py",
)


@dataclass
class Card:
    """Identity of a trained model, stored in its checkpoint."""

    experiment: str
    run_name: str
    run: dict[str, Any]
    architecture: dict[str, Any]
    vocab_size: int
    data_hash: str
    spec_hash: str
    mlflow_run_id: str | None = None


def checkpoint_path(experiment: str, run: str) -> Path:
    """Where a finished run's checkpoint lies, for DVC to keep."""
    return Path("checkpoints") / experiment / run / "last.ckpt"


def resume_folder(experiment: str, run: str) -> Path:
    """Where an unfinished run's checkpoints lie, out of reach of DVC, which deletes outputs before
    it runs a stage (those marked to persist it keeps, but then it caches no earlier run).
    """
    return Path("resume") / experiment / run


def code_hash(names: tuple[str, ...] = DECISIVE) -> str:
    """Hash of source files; by default of those that decide the weights."""
    digest = sha256()
    for name in names:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def make_card(experiment: Experiment, name: str, shards: Shards) -> Card:
    """The card of a run about to be trained; its hash covers all that decides the weights."""
    run = experiment.runs[name]
    preset = experiment.models[run.model]
    card = Card(
        experiment=experiment.name,
        run_name=name,
        run=asdict(run),
        architecture=asdict(experiment.model_config(run)),
        vocab_size=shards.metadata.vocab_size,
        data_hash=shards.metadata.hash,
        spec_hash="",
    )
    decisive = (
        asdict(card),
        asdict(preset.optim),
        experiment.compute.precision.value,
        torch.__version__,
        code_hash(),
    )
    card.spec_hash = sha256(dumps(decisive).encode()).hexdigest()[:16]
    return card


def read_checkpoint(path: Path) -> tuple[dict[str, Any], Card]:
    """A checkpoint's content and card; raises UserError if it is missing, damaged or foreign."""
    try:
        with ZipFile(path) as archive:
            if damaged := archive.testzip():  # torch.load does not look at checksums
                raise BadZipFile(f"bad checksum of {damaged}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no checkpoint here") from None
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, BadZipFile) as e:
        reason = str(e).partition("\n")[0] or "empty"
        raise UserError(f"{path}: not a readable checkpoint ({reason})") from None
    try:
        return content, Card(**content[ENTRY])
    except (KeyError, TypeError):
        raise UserError(f"{path}: a checkpoint, but not one of this project") from None


def load_model(path: Path) -> tuple[FreeTransformer, Card]:
    """The trained model, in evaluation mode on the CPU, and its card; raises UserError."""
    try:
        content, card = read_checkpoint(path)
    except UserError as error:
        raise UserError(f"{error}; train the run again") from None
    weights = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in content["state_dict"].items()
        if name.startswith(PREFIX)
    }
    try:
        model = FreeTransformer(ModelConfig(**card.architecture), card.vocab_size)
        model.load_state_dict(weights)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{path}: its weights do not fit its configuration: {' '.join(str(error).split())}"
        ) from None
    return model.eval(), card


def check_vocabulary(path: Path, card: Card, shards: Shards) -> None:
    """Raise UserError if a model was trained on other tokens than ``shards``."""
    if card.data_hash != shards.metadata.hash:
        raise UserError(
            f"{path} was trained on other data than {shards.folder} holds now; run `dvc repro`"
        )
