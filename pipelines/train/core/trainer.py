"""Training as one process sees it: alone, or one of several workers that share each batch."""

import logging
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from torch.utils.data import DataLoader

from ftmodel.conversion.latent_start import StartLosses
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import kl_of_use
from pipelines.artifacts.checkpoint import Manifest, checkpoints_in
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, stream_seed
from pipelines.config.schema import Precision
from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.files import check_writable
from pipelines.host.pytorch import keep_freed_memory
from pipelines.tracking.journal import experiment_note, open_journal
from pipelines.tracking.live import Tracking
from pipelines.train.core.acceleration import Compiled, speed_up
from pipelines.train.core.batches import FromStep, Share, StepBatches
from pipelines.train.core.callbacks import Checkpoints, CurveCallback, Watch, WholeFiles
from pipelines.train.core.module import NonFinite, TrainingModule
from pipelines.train.core.parent import copied, start_from_parent
from pipelines.train.core.segments import Segment, Start, find_start, row_ends, segments
from pipelines.train.monitoring import CollapseWarning, HeldOut, Profile, Progress, held_out_steps

CHECKPOINT_SECONDS = 20.0
ROWS = 150  # of the training curve, at most, but for those that end for another reason


@dataclass
class Process:
    """A process's rank among all that train, and what Lightning's Trainer must know about them.
    Without their environment it would take the one of the cluster that this process was started on.
    """

    rank: int = 0
    world_size: int = 1
    trainer: dict[str, Any] = field(default_factory=lambda: {"devices": 1})
    environment: LightningEnvironment = field(default_factory=LightningEnvironment)


@dataclass
class SegmentTraining:
    """All that one process needs to train a segment of a run."""

    spec: RunSpec
    process: Process
    start: Start
    watch: Watch | None
    tracking: Tracking | None = None  # of rank 0 alone
    padding: dict[str, torch.Tensor] = field(default_factory=dict)  # of the parent's vocabulary

    @property
    def segment(self) -> Segment:
        return self.start.segment

    @property
    def root(self) -> Path:
        return self.start.manifest.resume

    @property
    def title(self) -> str:
        name = self.spec.name
        several = len(segments(self.spec)) > 1
        return f"{name} to {self.segment.budget.listed:,} tokens" if several else name

    def start_tracking(self) -> None:
        check_writable(self.root)
        checkpoint, experiment = self.start.checkpoint, self.spec.experiment
        journal = open_journal(self.start.manifest, experiment, go_on=checkpoint is not None)
        note = "" if journal.run.parent else experiment_note(experiment)
        self.tracking = Tracking(journal, note)
        if checkpoint:
            say(f"{self.title}: going on from step {self.start.step}")

    def build_module(self, shards: Shards) -> TrainingModule:
        """The module, with weights drawn from the run's seed."""
        spec, run, config = self.spec, self.spec.run, self.spec.config
        torch.manual_seed(stream_seed(run.seed, Purpose.WEIGHTS))
        model = use_kernels(FreeTransformer(config, shards.metadata.vocab_size))
        if run.init_from and not self.start.checkpoint:
            losses, self.padding = start_from_parent(model, spec, shards)
            self.report_start(losses)
        elements = run.tokens * config.d_model * config.n_layers
        workers = self.process.world_size
        compiled = speed_up(
            model,
            spec.experiment.compute,
            elements / workers,
            alone=workers == 1 and not run.kappa_warmup_steps,  # a new κ is compiled anew
        )
        if compiled and self.tracking:
            say(f"{self.title}: the first step compiles {compiled} (compute.compile)")
        return TrainingModule(
            model,
            spec.optim,
            run,
            self.segment.steps,
            end_of_text=shards.metadata.end_of_text,
            compile_loss=compiled is Compiled.loss,
            copied=copied(model, spec),
        )

    def report_start(self, losses: StartLosses) -> None:
        """Say and log the losses before the first step beside the parent's."""
        if not self.tracking:
            return
        figures = {key: value for key, value in vars(losses).items() if value is not None}
        self.tracking.journal.append(prefix="start", figures=figures, step=0)
        words = f"nats per token before the first step: {losses.parent:.4f} of the parent"
        if losses.prior is not None:
            words += (
                f", {losses.prior:.4f} with z from the prior, {losses.posterior:.4f} from the "
                f"encoder, whose KL is {losses.kl:.4f}"
            )
        say(f"{self.title}: {words}")

    def build_batches(self, shards: Shards) -> DataLoader[dict[str, torch.Tensor]]:
        spec, process = self.spec, self.process
        batches = StepBatches(
            shards.windows("train", spec.config.context),
            spec.optim.batch_size,
            spec.steps,
            spec.run.seed,
            spec.config.noise_width,
            Share(process.rank, process.world_size, spec.experiment.compute.accumulate),
        )
        return DataLoader(batches, batch_size=None, sampler=FromStep(self.start.step, batches))

    def build_callbacks(self, shards: Shards) -> list[L.Callback]:
        """The callbacks, in the order in which Lightning calls them after each step."""
        spec, kappa_bits = self.spec, self.spec.run.kappa_bits
        held_out_tokens = spec.experiment.evaluation.every_tokens
        ends = row_ends(self.segment, segments(spec))
        if held_out_tokens:
            ends |= {*held_out_steps(spec, held_out_tokens)}
        kappa = 0.0 if kappa_bits is None else kl_of_use(spec.config, kappa_bits)
        curve = CurveCallback(
            self.segment,
            every=-(-spec.steps // ROWS),
            ends=ends,
            batch_tokens=spec.batch_tokens,
            kappa=kappa,
            watch=self.watch,
            record=self.tracking.log_row if self.tracking else None,
        )
        callbacks: list[L.Callback] = []
        if held_out_tokens:  # logs what belongs into the row that ends at this step
            callbacks.append(HeldOut(spec, shards, held_out_tokens, curve.leave_out))
        callbacks.append(curve)
        if self.tracking:  # these look at the newest row
            if kappa_bits is not None:
                callbacks.append(CollapseWarning(self.tracking, curve, kappa, spec.steps))
            callbacks.append(Progress(curve, self.title, self.segment.steps))
            if spec.experiment.compute.profile:
                trace = f"trace_{spec.name}_{self.segment.budget.listed}.json"
                callbacks.append(Profile(Path("logs", spec.experiment.name, trace)))
        # last: a checkpoint has the rows up to its step
        manifest = self.start.manifest
        callbacks.append(
            Checkpoints(self.root, CHECKPOINT_SECONDS, self.segment, manifest, self.padding)
        )
        return callbacks

    def build_trainer(self, callbacks: list[L.Callback]) -> L.Trainer:
        compute = self.spec.experiment.compute
        return L.Trainer(
            **self.process.trainer,
            plugins=[WholeFiles(), self.process.environment],
            precision=lightning_precision(compute.precision),  # type: ignore[arg-type]
            max_steps=self.segment.steps,
            max_epochs=-1,
            accumulate_grad_batches=compute.accumulate,
            use_distributed_sampler=False,
            callbacks=callbacks,
            logger=False,  # CurveCallback logs its rows
            enable_progress_bar=False,  # Progress is one
            enable_checkpointing=False,
            enable_model_summary=False,
            default_root_dir=self.root,
        )

    def train(self) -> None:
        shards = self.spec.shards()
        module, batches = self.build_module(shards), self.build_batches(shards)
        trainer = self.build_trainer(self.build_callbacks(shards))
        checkpoint = self.start.checkpoint
        try:
            trainer.fit(module, batches, ckpt_path=checkpoint, weights_only=True)
        except BaseException as error:
            if self.tracking:
                with suppress(UserError):  # the disk may be full: ``error`` says more
                    self.tracking.finish("FAILED" if isinstance(error, Exception) else "KILLED")
            if line := self.explain(error):
                raise UserError(line) from None
            raise
        if self.tracking:
            self.tracking.finish("FINISHED" if self.segment.last else "RUNNING")

    def explain(self, error: BaseException) -> str:
        """What a user can fix, in one line; "" for a bug."""
        if isinstance(error, NonFinite):
            return (
                f"{self.spec.name}: the gradient is not finite at step {error.step}, whose batch "
                f"has the windows {error.windows} of the training data; "
                f"{last_good(self.root, self.segment)}"
            )
        if isinstance(error, torch.OutOfMemoryError):
            return (
                f"{self.spec.name}: the GPU's memory is full; raise compute.accumulate, turn on "
                "compute.activation_checkpointing, or shard the model with compute.strategy: "
                f"fsdp ({str(error).partition('. ')[0]})"
            )
        if isinstance(error, OSError):
            reason = error.strerror or error
            return f"{self.root}: {reason}; {last_good(self.root, self.segment)}"
        return ""


def lightning_precision(wanted: Precision) -> str:
    """Lightning's name for the precision; auto is bf16 on a GPU that has it."""
    gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    bf16 = wanted is Precision.bf16 or (wanted is Precision.auto and gpu)
    return "bf16-mixed" if bf16 else "32-true"


def fit(
    spec: RunSpec, manifest: Manifest, process: Process | None = None, watch: Watch | None = None
) -> None:
    """Train a run to its end, segment by segment, in this process; see fit_segment."""
    ended = False
    while not ended:
        start = find_start(spec, manifest)
        fit_segment(spec, process or Process(), start, watch)
        ended = start.segment.last


def fit_segment(spec: RunSpec, process: Process, start: Start, watch: Watch | None = None) -> None:
    """Train a segment of a run to its end; its final checkpoint, or weights, lie in resume/.

    Rank 0 alone shows progress and writes the journal for MLflow. Each process calls ``watch`` with
    every new row of the training curve (see CurveCallback).
    Raises UserError for a loss that is not finite and for a disk that takes no checkpoint.
    """
    quiet()
    keep_freed_memory()
    training = SegmentTraining(spec, process, start, watch)
    if process.rank == 0:
        training.start_tracking()
    training.train()


def last_good(folder: Path, segment: Segment) -> str:
    """The checkpoint that a failed run leaves behind, in words."""
    paths = (
        checkpoints_in(segment.folder(folder, step)) for step in (segment.trunk, segment.steps)
    )
    newest = max(chain(*paths), key=lambda path: int(path.stem), default=None)
    return f"last good checkpoint: {newest}" if newest else "no checkpoint was written yet"


def quiet() -> None:
    """Silence Lightning's advice on choices that were made on purpose."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*isinstance.*treespec.*",
        ".*ended before the epoch ended.*",
        ".*exists and is not empty.*",
        ".*code generation for complex operators.*",  # RoPE's table: blocks only look at it
    ):
        warnings.filterwarnings("ignore", message)
