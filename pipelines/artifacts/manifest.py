"""Compares what a checkpoint was trained with, by its manifest, with params.yaml."""

from dataclasses import asdict
from hashlib import sha256
from json import dumps
from typing import Any

from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.checkpoint import Manifest, check_vocabulary, load_model
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.config.frozen import first_difference


def settings_hash(spec: RunSpec, vocab_size: int) -> str:
    """Hash of the settings that decide the weights of a run."""
    return hash_of(
        (
            *(spec.experiment.name, spec.name, asdict(spec.run)),
            *(asdict(spec.config), vocab_size),
            asdict(spec.optim),
            spec.experiment.compute.precision.value,
        )
    )


def hash_of(content: Any) -> str:
    return sha256(dumps(content).encode()).hexdigest()


def load_trained(
    spec: RunSpec, tokens: int | None = None
) -> tuple[FreeTransformer, Manifest, Shards]:
    """Load a run's model, or its model at a smaller budget of ``tokens``, with its manifest and the
    tokens of the run's data. Raises UserError if a file is missing or damaged, or the model was
    trained with other settings or data.
    """
    path = spec.checkpoint(tokens)
    model, manifest = load_model(path)
    check_manifest(path, manifest, spec)
    shards = spec.shards()
    check_vocabulary(path, manifest, shards)
    return model, manifest, shards


def check_manifest(path: object, manifest: Manifest, spec: RunSpec) -> None:
    """Raise UserError if the model at ``path`` was trained with other settings than ``spec``."""
    name, run = spec.name, spec.run
    wanted = {
        "runs": {name: asdict(run)},
        "models": {run.model: {"architecture": asdict(spec.config)}},
    }
    said = {
        "runs": {manifest.run_name: manifest.run},
        "models": {run.model: {"architecture": manifest.architecture}},
    }
    words = first_difference(said, wanted)
    if not words and manifest.parts.get("settings") != settings_hash(spec, manifest.vocab_size):
        words = f"name, models.{run.model}.optim or compute.precision was another"
    if words:
        raise UserError(
            f"{path}: not the run that params.yaml describes: {words}; "
            f"`dvc repro --force --single-item train@{name}` trains that run"
        )
