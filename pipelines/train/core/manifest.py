"""The manifest of a run to be trained: its identity, and a hash of all that decides its weights."""

from dataclasses import asdict
from hashlib import sha256
from json import dumps

import torch

from pipelines.artifacts.checkpoint import Card
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.provenance import device_name, git_revision
from pipelines.common.source_code import code_version
from pipelines.config.schema import Experiment


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
    described = asdict(card)
    del described["git_revision"], described["device"]
    decisive = (
        described,
        asdict(preset.optim),
        experiment.compute.precision.value,
        torch.__version__,
        code_version("train"),
    )
    card.spec_hash = sha256(dumps(decisive).encode()).hexdigest()[:16]
    workers = experiment.compute.workers
    card.git_revision = git_revision()
    card.device = (f"{workers} × " if workers > 1 else "") + device_name()
    return card
