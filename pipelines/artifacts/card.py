"""A checkpoint's card, its manifest: what it was trained with, held against params.yaml."""

from dataclasses import asdict
from hashlib import sha256
from json import dumps
from typing import Any

from pipelines.artifacts.checkpoint import Manifest
from pipelines.common.errors import UserError
from pipelines.config.frozen import first_difference
from pipelines.config.schema import Experiment


def settings_hash(experiment: Experiment, name: str, vocab_size: int) -> str:
    """Hash of the settings that decide the weights of a run."""
    run = experiment.runs[name]
    return hash_of(
        (
            *(experiment.name, name, asdict(run)),
            *(asdict(experiment.model_config(run)), vocab_size),
            asdict(experiment.models[run.model].optim),
            experiment.compute.precision.value,
        )
    )


def hash_of(content: Any) -> str:
    return sha256(dumps(content).encode()).hexdigest()


def check_card(path: object, card: Manifest, experiment: Experiment, name: str) -> None:
    """Raise UserError if the model of ``path`` was trained with other settings than those of a run
    in params.yaml.
    """
    run = experiment.runs[name]
    wanted = {
        "runs": {name: asdict(run)},
        "models": {run.model: {"architecture": asdict(experiment.model_config(run))}},
    }
    said = {
        "runs": {card.run_name: card.run},
        "models": {run.model: {"architecture": card.architecture}},
    }
    words = first_difference(said, wanted)
    settings = card.parts.get("settings")  # early checkpoints have none
    if not words and settings and settings != settings_hash(experiment, name, card.vocab_size):
        words = f"name, models.{run.model}.optim or compute.precision was another"
    if words:
        raise UserError(
            f"{path}: not of the run that params.yaml describes: {words}; "
            f"`dvc repro --force --single-item train@{name}` trains it"
        )
