"""What an experiment asked and expected when the training of a run began.

It decides nothing, so it is no part of the manifest or of the hash that tells trainings apart: it
waits in resume/ while the run is trained, so that a resumed run keeps what was written at its
start, and then lies beside the checkpoint.
"""

from dataclasses import dataclass, field
from pathlib import Path

from pipelines.artifacts import result_files
from pipelines.artifacts.checkpoint import STATEMENT, Manifest, peek, resume_checkpoints
from pipelines.artifacts.paths import checkpoint_path
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.errors import UserError
from pipelines.config.schema import Expectation


@dataclass(frozen=True)
class Preregistration:
    """preregistration.json"""

    question: str | None = None
    expectation: list[Expectation] = field(default_factory=list)


def final_path(experiment: str, run: str) -> Path:
    """Its place beside the checkpoint of a trained run."""
    return checkpoint_path(experiment, run).with_name(STATEMENT)


def record(spec: RunSpec, manifest: Manifest) -> None:
    """Write the statement down, unless a checkpoint says that training has begun. Raises
    UserError.
    """
    experiment, root = spec.experiment, manifest.resume
    if any(map(peek, resume_checkpoints(root))):
        return
    statement = Preregistration(experiment.question, experiment.expectation)
    try:
        root.mkdir(parents=True, exist_ok=True)
        result_files.write(root / STATEMENT, statement)
    except OSError as error:
        raise UserError(f"{root}: {error.strerror}") from None


def publish(manifest: Manifest) -> None:
    """Copy the statement, if there is one, beside the checkpoint. It stays in resume/ for another
    publication.
    """
    path = manifest.resume / STATEMENT
    if path.exists():
        final_path(manifest.experiment, manifest.run_name).write_bytes(path.read_bytes())


def read(experiment: str, run: str) -> Preregistration | None:
    """That of a trained run; None if it was not recorded."""
    path = final_path(experiment, run)
    return result_files.read(path, Preregistration, "train") if path.exists() else None
