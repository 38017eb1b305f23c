"""Checkpoints: what a run needs to be resumed, evaluated and told apart from a stale one.

A checkpoint is Lightning's file with one more entry, the manifest as plain data under
``free_transformer``. Loading never unpickles arbitrary objects (``weights_only=True``). A hash of
all settings that decide the weights tells trainings apart, and what a stage loads is compared with
params.yaml.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from ftmodel.config import ModelConfig
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.load import first_difference
from pipelines.config.schema import Expectation
from pipelines.host.errors import UserError
from pipelines.host.files import JOURNAL, resume_folder

ENTRY = "free_transformer"
HISTORY = "history"  # rows of the training curve
PADDING = "padding"  # from load_llama: the parent's vocabulary rows beyond the ids
RESUME = ("*.ckpt", "decay-*/*.ckpt", "budgets/*.ckpt")  # in Manifest.resume
PREFIX = "model."  # of the model's parameters inside the training module


@dataclass(frozen=True)
class Preregistration:
    """What an experiment asked and expected when the training of a run began.

    It affects no result, so the hash that tells trainings apart leaves it out. Every checkpoint's
    manifest has it, and a resumed run takes it over from there.
    """

    question: str | None = None
    expectation: list[Expectation] = field(default_factory=list)


@dataclass
class Manifest:
    """Identity of a trained model, stored in its checkpoint."""

    experiment: str
    run_name: str
    run: dict[str, Any]
    architecture: dict[str, Any]
    vocab_size: int
    data_hash: str
    spec_hash: str  # covers all that decides the weights
    tracking_key: str = ""  # tells apart two trainings of one specification
    git_revision: str = ""  # of the code that wrote the checkpoint
    device: str = ""  # that trained it
    day: str = ""  # of UTC, such as 2026-11-28, on which this training began or went on
    parts: dict[str, str] = field(default_factory=dict)  # what spec_hash covers
    # the model that training began from: its `hf` or `run`, and `sha256` of its weights
    parent: dict[str, str] = field(default_factory=dict)
    preregistration: Preregistration | None = None  # when training began; None: not recorded

    @property
    def entry(self) -> dict[str, Any]:
        """The manifest as a checkpoint stores it: plain data, with enumerations as their values."""
        entry: dict[str, Any] = json.loads(json.dumps(asdict(self), default=attrgetter("value")))
        return entry

    @property
    def resume(self) -> Path:
        """The folder from which this specification of the run resumes; others have their own."""
        return resume_folder(self.experiment, self.run_name) / self.spec_hash


def resume_checkpoints(root: Path) -> list[Path]:
    """All checkpoints in a folder such as Manifest.resume."""
    paths = (path for glob in RESUME for path in root.glob(glob))
    return sorted(path for path in paths if path.is_file())


def checkpoints_in(folder: Path) -> list[Path]:
    """A folder's checkpoints by rising step; a file without a step as its name is not ours."""
    ours = (path for path in folder.glob("*.ckpt") if path.is_file() and path.stem.isdecimal())
    return sorted(ours, key=lambda path: int(path.stem))


def remove_finished(manifest: Manifest) -> None:
    """Delete what a finished run could resume from; damaged and foreign files stay."""
    root = manifest.resume
    for path in (*resume_checkpoints(root), root / JOURNAL):
        path.unlink(missing_ok=True)
    for folder in (*root.glob("decay-*"), root / "budgets", root, root.parent):
        with suppress(OSError):  # not empty, or not there
            folder.rmdir()


def load_content(path: Path) -> Any:
    """A checkpoint's content, its tensors left on disk."""
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def peek_manifest(path: Path) -> Manifest | None:
    """A checkpoint's manifest without reading its tensors; None if there is no readable one."""
    with suppress(UserError):
        return read_checkpoint(path, verify=False)[1]
    return None


def read_checkpoint(path: Path, verify: bool = True) -> tuple[dict[str, Any], Manifest]:
    """Read a checkpoint's content, with tensors left on disk, and its manifest. Raises UserError if
    it is not readable or not ours. ``verify`` reads all of it once to compare checksums.
    """
    try:
        with ZipFile(path) as archive:
            if verify and (damaged := archive.testzip()):  # torch.load does not look at checksums
                raise BadZipFile(f"bad checksum of {damaged}")
        content = load_content(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no checkpoint here") from None
    except MemoryError:
        raise
    except Exception as error:  # a file of another program may make torch raise anything
        reason = str(error).partition("\n")[0] or "empty"
        if "weights_only" in str(error):  # advice to load it and run what code it brings
            reason = "damaged, or it holds more than tensors, numbers and texts"
        raise UserError(f"{path}: not a readable checkpoint ({reason})") from None
    try:
        return content, TypeAdapter(Manifest).validate_python(content[ENTRY])
    except (LookupError, TypeError, ValidationError):
        raise UserError(f"{path}: a checkpoint, but not one of this project") from None


def load_model(path: Path) -> tuple[FreeTransformer, Manifest]:
    """The trained model, in evaluation mode on the CPU, and its manifest; raises UserError."""
    try:
        content, manifest = read_checkpoint(path)
    except UserError as error:
        raise UserError(f"{error}; train the run again") from None
    weights = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in content["state_dict"].items()
        if name.startswith(PREFIX)
    }
    try:
        model = FreeTransformer(ModelConfig(**manifest.architecture), manifest.vocab_size)
        model.load_state_dict(weights)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{path}: its weights do not fit its configuration: {' '.join(str(error).split())}"
        ) from None
    return use_kernels(model).eval(), manifest


def read_padding(path: Path) -> dict[str, Tensor]:
    """Vocabulary rows that a checkpoint keeps for exports, by Hugging Face's names of the tensors.

    The checkpoint must have been read, and so checked, before.
    """
    rows: dict[str, Tensor] = load_content(path).get(PADDING, {})
    return rows


def check_vocabulary(path: Path, manifest: Manifest, shards: Shards) -> None:
    """Raise UserError if a model was trained on other tokens than ``shards``."""
    if manifest.data_hash != shards.metadata.hash:
        raise UserError(
            f"{path} was trained on other data than {shards.folder} holds now; run `dvc repro`"
        )


def settings_hash(spec: RunSpec, vocab_size: int) -> str:
    """Hash of the settings that decide the weights of a run."""
    settings = [
        spec.experiment.name,
        spec.name,
        asdict(spec.run),
        asdict(spec.config),
        vocab_size,
        asdict(spec.optim),
        spec.experiment.compute.precision.value,
    ]
    return hash_of(settings)


def hash_of(content: Any) -> str:
    """SHA-256 of plain data."""
    return sha256(json.dumps(content).encode()).hexdigest()


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
    settings = {
        "runs": {name: asdict(run)},
        "models": {run.model: {"architecture": asdict(spec.config)}},
    }
    trained = {
        "runs": {manifest.run_name: manifest.run},
        "models": {run.model: {"architecture": manifest.architecture}},
    }
    words = first_difference(trained, settings)
    # Some settings are in no entry of the manifest: only their hash is
    if not words and manifest.parts.get("settings") != settings_hash(spec, manifest.vocab_size):
        words = f"name, models.{run.model}.optim or compute.precision was another"
    if words:
        raise UserError(
            f"{path}: not the run that params.yaml describes: {words}; "
            f"`dvc repro --force --single-item train@{name}` trains that run"
        )
