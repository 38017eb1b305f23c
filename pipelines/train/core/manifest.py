"""The manifest of a run to be trained: its identity, and a hash of all that decides its weights."""

from dataclasses import asdict

import torch

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.manifest import hash_of, settings_hash
from pipelines.artifacts.preregistration import Preregistration
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.provenance import device_name, git_revision
from pipelines.common.source_code import code_version
from pipelines.train.core.parent import parent_identity


def make_manifest(spec: RunSpec, shards: Shards) -> Manifest:
    """The manifest of a run about to be trained. Raises UserError if its parent is missing."""
    vocab_size = shards.metadata.vocab_size
    parts = {
        "code": code_version("train"),
        "settings": settings_hash(spec, vocab_size),
        "data": shards.metadata.hash,
        "torch": str(torch.__version__),
    }
    if every := spec.experiment.evaluation.every_tokens:
        parts["evaluation.every_tokens"] = str(every)  # the curve has it
    parent = parent_identity(spec)
    if parent:
        parts["parent"] = parent["sha256"]
    workers = spec.experiment.compute.workers
    return Manifest(
        experiment=spec.experiment.name,
        run_name=spec.name,
        run=asdict(spec.run),
        architecture=asdict(spec.config),
        vocab_size=vocab_size,
        data_hash=shards.metadata.hash,
        spec_hash=hash_of(parts)[:16],
        git_revision=git_revision(),
        device=(f"{workers} × " if workers > 1 else "") + device_name(),
        parts=parts,
        parent=parent,
        preregistration=Preregistration(spec.experiment.question, spec.experiment.expectation),
    )


def differences(theirs: Manifest, ours: Manifest) -> list[str]:
    """The parts in which two specifications of a run differ, in words."""
    words = []
    for part in {**ours.parts, **theirs.parts}:
        then, now = (manifest.parts.get(part) for manifest in (theirs, ours))
        if then == now:
            continue
        if part == "settings":
            pairs = [(theirs.run, ours.run), (theirs.architecture, ours.architecture)]
            keys = [key for a, b in pairs for key in {**a, **b} if a.get(key) != b.get(key)]
            part += f" ({', '.join(dict.fromkeys(keys)) or 'optim or compute.precision'})"
        if part in ("torch", "evaluation.every_tokens"):
            part += f" ({then or 'none'} then, {now or 'none'} now)"
        words.append(part)
    return words
