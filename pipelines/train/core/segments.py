"""A run's training from its manifest to what it hands on: the manifest, with a hash of all that
decides the weights; the segments, and the checkpoint that training goes on from; publishing.

Under wsd every budget of a run decays from a trunk that all share, and the trunk is trained once.
A segment follows its budget's schedule from where the trunk has got to, and leaves the trunk where
its decay begins. The next segment goes on from there. Any other run has one segment.

resume/<experiment>/<run>/<hash of the specification>/
    00000120.ckpt              the trunk, and the last segment to its end: the newest two
    decay-5200/00000130.ckpt   the decay of a smaller budget, while it lasts: the newest two
    budgets/5200.ckpt          the weights at the end of a smaller budget, and their manifest
"""

import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from ftmodel.schedule import decay_start
from pipelines.artifacts.checkpoint import (
    HISTORY,
    Manifest,
    Preregistration,
    checkpoints_in,
    hash_of,
    peek_manifest,
    read_checkpoint,
    resume_checkpoints,
    settings_hash,
)
from pipelines.artifacts.curve import write_table
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.derived import Budget
from pipelines.config.schema import Schedule
from pipelines.host.errors import UserError
from pipelines.host.files import JOURNAL, replace_folder
from pipelines.host.machine import git_revision
from pipelines.host.pytorch import device_name
from pipelines.host.source_code import code_version
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
        day=str(datetime.now(UTC).date()),
        parts=parts,
        parent=parent,
        preregistration=Preregistration(spec.experiment.question, spec.experiment.expectation),
    )


def differences(theirs: Manifest, ours: Manifest) -> list[str]:
    """The parts in which two specifications of a run differ, in words."""
    words = []
    for part in {**ours.parts, **theirs.parts}:
        then, now = theirs.parts.get(part), ours.parts.get(part)
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


@dataclass(frozen=True)
class Segment:
    """Training on the schedule of one budget, to its end. Steps count from the run's start."""

    budget: Budget
    trunk: int  # steps on the trunk; all of them for the last segment, which no other follows
    keep: dict[int, int]  # by the step where it ends here: a smaller budget's listed tokens

    @property
    def steps(self) -> int:
        return self.budget.steps

    @property
    def last(self) -> bool:
        return self.trunk == self.steps

    def folder(self, root: Path, step: int) -> Path:
        """The folder for its checkpoint of a step, below Manifest.resume."""
        return root if step <= self.trunk else root / f"decay-{self.budget.listed}"


def budget_path(root: Path, tokens: int) -> Path:
    """Where the weights of a smaller budget wait, below Manifest.resume."""
    return root / "budgets" / f"{tokens}.ckpt"


def segments(spec: RunSpec) -> list[Segment]:
    *smaller, final = spec.budgets
    optim = spec.optim
    if optim.schedule is Schedule.cosine:
        return [Segment(final, final.steps, {budget.steps: budget.listed for budget in smaller})]
    decays = [
        Segment(budget, decay_start(optim.decay, budget.steps), {budget.steps: budget.listed})
        for budget in smaller
    ]
    return [*decays, Segment(final, final.steps, {})]


def row_ends(segment: Segment, every: list[Segment]) -> set[int]:
    """Steps at which a row of the curve ends, so that no row spans the trunk and a decay."""
    return {segment.steps, *(other.trunk for other in every)}


def steps_taken(training: list[Segment]) -> int:
    """Optimizer steps of all segments: the trunk once, and each decay."""
    before = [0, *(segment.trunk for segment in training)]
    return sum(segment.steps - begun for segment, begun in zip(training, before, strict=False))


@dataclass
class Start:
    """Where a run goes on: its first segment that has not ended (or else its last), and the newest
    checkpoint of that segment or of the trunk before it, if there is one.
    """

    manifest: Manifest  # of the run
    segment: Segment
    checkpoint: Path | None

    @property
    def step(self) -> int:
        return int(self.checkpoint.stem) if self.checkpoint else 0


def find_start(spec: RunSpec, manifest: Manifest) -> Start:
    """See Start. Deletes the checkpoints of decays that have ended."""
    root = manifest.resume
    name_others(manifest)
    # the first segment that lacks the weights of a budget, or else the last
    for segment in segments(spec):
        missing = [
            step
            for step, tokens in segment.keep.items()
            if not read_own(budget_path(root, tokens), manifest, "its budget is trained for again")
        ]
        if missing or segment.last:
            break
        remove_decay(segment.folder(root, segment.steps))
    until = missing[0] - 1 if missing else segment.steps  # what is missing lies ahead once more
    newest = newest_checkpoint(root, manifest, min(until, segment.trunk))
    if not segment.last:
        decay = segment.folder(root, segment.steps)
        newest = newest_checkpoint(decay, manifest, until) or newest
    return Start(manifest, segment, newest[0] if newest else None)


def name_others(manifest: Manifest) -> None:
    """Say why a run begins anew, if other specifications (code, settings, data or version of torch)
    left checkpoints. They stay; training goes on from them once what differs is restored.
    """
    if resume_checkpoints(manifest.resume):
        return
    for folder in sorted(manifest.resume.parent.glob("*/")):
        paths = resume_checkpoints(folder)
        if theirs := next(filter(None, map(peek_manifest, paths)), None):
            revision = f" (git revision {theirs.git_revision})" if theirs.git_revision else ""
            print(
                f"{manifest.run_name}: {len(paths)} checkpoints in {folder} belong to another "
                f"specification: {', '.join(differences(theirs, manifest))}. Training continues "
                f"from them once that is restored{revision}",
                flush=True,
            )


def remove_decay(folder: Path) -> None:
    """Delete the checkpoints of a decay whose budget is complete."""
    for path in (*checkpoints_in(folder), *folder.glob("*.partial")):
        path.unlink()
    with suppress(OSError):  # not there, or with damaged ones
        folder.rmdir()


def newest_checkpoint(
    folder: Path, manifest: Manifest, until: float = inf
) -> tuple[Path, dict[str, Any]] | None:
    """The newest readable checkpoint of this very run up to a step, and its content. See read_own
    for the fields of the manifest that it fills in.
    """
    for path in reversed(checkpoints_in(folder)):
        if int(path.stem) > until:
            continue
        if content := read_own(path, manifest, "trying the one before it"):
            return path, content
    return None


def read_own(path: Path, manifest: Manifest, otherwise: str) -> dict[str, Any] | None:
    """The content of a checkpoint, if there is one and it has this very specification.

    A damaged one is reported, with what is done ``otherwise``, and renamed. Fills in the fields of
    the manifest that training has from its beginning: tracking_key and preregistration.
    """
    if not path.exists():
        return None
    try:
        content, theirs = read_checkpoint(path)
    except UserError as error:
        damaged = path.with_suffix(".unreadable")
        path.replace(damaged)
        print(f"{error}; put aside as {damaged.name}, {otherwise}", flush=True)
        return None
    if theirs.spec_hash != manifest.spec_hash:
        return None
    manifest.tracking_key = theirs.tracking_key or manifest.tracking_key
    manifest.preregistration = theirs.preregistration
    return content


def publish(spec: RunSpec, manifest: Manifest) -> None:
    """Put a trained run's checkpoints, configuration, journal and curve where DVC expects them."""
    run, root = spec.run, manifest.resume
    newest = newest_checkpoint(root, manifest)
    assert newest is not None, "training left no checkpoint"
    last, content = newest
    assert int(last.stem) == spec.steps, f"{last} is not the end"
    target = spec.checkpoint()
    with replace_folder(target.parent) as folder:
        link(last, folder / target.name)
        for tokens in run.budgets:
            link(budget_path(root, tokens), folder / f"{tokens}.ckpt")
        experiment = spec.experiment
        preset = experiment.models[run.model]
        resolved = {"experiment": experiment.name, "run": asdict(run), "model": asdict(preset)}
        OmegaConf.save(OmegaConf.create(resolved), folder / "config.yaml")
        shutil.copyfile(root / JOURNAL, folder / JOURNAL)
    curve = spec.results / "curve.csv"
    curve.parent.mkdir(parents=True, exist_ok=True)
    write_table(curve, content[HISTORY]["rows"])


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
