"""The typed schema of an experiment, and its validation: every mistake is one line with its key.

``conf/`` is composed into ``params.yaml`` (see compose.py); every stage reads it through
:func:`load_experiment`, which checks the whole of it before any work starts.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ftmodel.config import ModelConfig
from ftmodel.processes import PROCESSES
from ftmodel.schedule import decay_start
from pipelines.data_schema import ProcessData, TextData, merge_data
from pipelines.errors import UserError
from pipelines.suite_schema import Suite

PARAMS = Path("params.yaml")
NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


class Schedule(StrEnum):
    cosine = "cosine"  # to zero
    wsd = "wsd"  # warm-up, stable, decay: budgets branch off the stable part


@dataclass
class Optim:
    """AdamW with linear warm-up and a schedule that ends at zero; gradients clipped by norm."""

    batch_size: int = MISSING  # sequences
    lr: float = MISSING  # at the top of the schedule
    warmup_steps: int = 100
    schedule: Schedule = Schedule.cosine
    decay: float = 0.2  # of a budget, that it decays for under wsd
    weight_decay: float = 0.01  # on matrices, not on norms
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0

    def validate(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size: {self.batch_size} must be at least 1")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise ValueError(f"{name}: {value} must be a positive number")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is outside 0 … 1")
        for name in ("warmup_steps", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")
        if not 0 < self.decay < 1:
            raise ValueError(f"decay: {self.decay} is not between 0 and 1")


@dataclass
class Preset:
    """A model size with the recipe that trains it; ``latent_bits`` is for its Free Transformers."""

    architecture: ModelConfig = MISSING
    optim: Optim = field(default_factory=Optim)


@dataclass
class Run:
    """One training run: an arm of the comparison."""

    data: str = MISSING  # a name under `data`
    model: str = MISSING  # a name under `models`
    kappa_bits: float | None = MISSING  # κ in bits per token; null is the baseline
    kappa_warmup_steps: int = 0  # over which κ rises from 0; the paper has none, nor a baseline
    tokens: int = MISSING  # budget, exact to one batch
    # smaller ones in tokens, whose models are kept and measured too; another list is another run
    budgets: list[int] = field(default_factory=list)
    extra_blocks: int = 0  # a control: of a baseline, for the encoder block of its Free Transformer
    seed: int = 0


class Precision(Enum):
    auto = "auto"  # bf16 on a GPU that has it, else float32
    float32 = "float32"
    bf16 = "bf16"


class Strategy(Enum):
    ddp = "ddp"  # every worker holds the whole model
    fsdp = "fsdp"  # the workers share it out: FSDP2


@dataclass
class Compute:
    """Where and how training runs. But for precision, only memory and speed depend on it."""

    precision: Precision = Precision.auto
    compile: bool | None = None  # torch.compile, block by block; null: of runs that end sooner so
    activation_checkpointing: bool = False  # blocks are computed again in the backward pass
    accumulate: int = 1  # micro-batches a step
    workers: int = 1  # processes that share each batch; more than one run on Ray
    cpus_per_worker: int = 1
    gpus_per_worker: float | None = None  # null: 1 where the cluster has GPUs, else 0
    strategy: Strategy = Strategy.ddp
    max_failures: int = 3  # lost workers or nodes that a run outlives

    def validate(self) -> None:
        for name, least in (
            ("accumulate", 1),
            ("workers", 1),
            ("cpus_per_worker", 1),
            ("max_failures", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least {least}")
        if self.gpus_per_worker is not None and not 0 <= self.gpus_per_worker <= 1:
            raise ValueError(
                f"gpus_per_worker: {self.gpus_per_worker} is outside 0 … 1; a worker drives one GPU"
            )
        if self.workers > 1 and self.gpus_per_worker and self.gpus_per_worker < 1:
            raise ValueError(
                f"gpus_per_worker: {self.gpus_per_worker}, but workers that share a batch need a "
                "GPU each"
            )
        if self.strategy is Strategy.fsdp and self.workers == 1:
            raise ValueError("strategy: fsdp shares a model out, but compute.workers is 1")


@dataclass
class Evaluation:
    """How much is spent on measuring; the same for every run of an experiment."""

    tokens: int | None = 65_536  # held-out tokens scored, at most; null: all
    batch_tokens: int = 4096  # scored at once
    iwae_samples: int = 16  # K
    groups: int = 64  # of generations that share a prompt
    group_size: int = 8
    probe_sequences: int = 16_384  # that a probe learns from what z says of the target's place
    seed: int = 0

    def validate(self) -> None:
        for name, least in (
            ("tokens", 1),
            ("batch_tokens", 1),
            ("iwae_samples", 1),
            ("groups", 2),
            ("group_size", 5),
            ("probe_sequences", 1),
        ):
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name}: {value} must be at least {least}")
        if not 0 <= self.seed < 1 << 32:
            raise ValueError(f"seed: {self.seed} is outside 0 … 2^32 − 1")


@dataclass(frozen=True)
class Budget:
    """A token budget of a run, at whose end its model is kept and measured."""

    listed: int  # tokens, as configured
    steps: int  # optimizer steps that it pays for, whole batches
    annealed: bool  # whether the learning rate has come down to its end by then


@dataclass
class Experiment:
    name: str = MISSING
    data: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Preset] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)  # with which `arms` make `runs`
    arms: dict[str, Run] = field(default_factory=dict)  # their `seed` is not read
    runs: dict[str, Run] = field(default_factory=dict)
    compute: Compute = field(default_factory=Compute)
    evaluation: Evaluation = field(default_factory=Evaluation)
    suite: Suite = field(default_factory=Suite)
    suite_runs: dict[str, str] = field(default_factory=dict)  # those it scores; made by Hydra

    def model_config(self, run: Run) -> ModelConfig:
        """The architecture of a run: its preset's, without its latent for a baseline."""
        architecture = self.models[run.model].architecture
        if run.kappa_bits is not None:
            return architecture
        blocks = architecture.n_layers + run.extra_blocks
        changes = {"n_layers": blocks, "latent_bits": 0, "latent_block": None}
        return ModelConfig(**{**vars(architecture), **changes})

    def steps(self, run: Run) -> int:
        """Optimizer steps that the token budget pays for."""
        return run.tokens // self.batch_tokens(run)

    def batch_tokens(self, run: Run) -> int:
        """Tokens that an optimizer step predicts."""
        preset = self.models[run.model]
        return preset.optim.batch_size * preset.architecture.context

    def budgets(self, run: Run) -> list[Budget]:
        """The budgets of a run as they rise, the whole run's last.

        Under wsd each has a decay of its own; under the cosine the smaller ones are snapshots on
        the way of the whole run's.
        """
        wsd = self.models[run.model].optim.schedule is Schedule.wsd
        batch = self.batch_tokens(run)
        return [
            *(Budget(tokens, tokens // batch, annealed=wsd) for tokens in run.budgets),
            Budget(run.tokens, run.tokens // batch, annealed=True),
        ]


def load_experiment(path: Path = PARAMS) -> Experiment:
    """Read and validate ``params.yaml``; raises UserError naming the file and the dotted key."""
    try:
        node = OmegaConf.load(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: `make repro` composes it from conf/") from None
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    if not isinstance(node, DictConfig):
        raise UserError(f"{path}: not a mapping")
    return parse(node, str(path))


def parse(node: DictConfig, source: str) -> Experiment:
    """Validate a composed configuration; raises UserError naming ``source`` and the dotted key."""
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Experiment), node)
        OmegaConf.resolve(merged)
        data = {
            name: merge_data(source, f"data.{name}", entry) for name, entry in merged.data.items()
        }
        merged.data = {}
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise UserError(f"{source}: {missing[0]} is missing")
        experiment = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise UserError(f"{source}: {key}{str(error).splitlines()[0]}") from None
    assert isinstance(experiment, Experiment)
    experiment.data = data
    try:
        check(experiment)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    return experiment


def check_part(key: str, part: Any) -> None:
    try:
        part.validate()
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None


def check_names(group: str, entries: dict[str, Any]) -> None:
    for name in entries:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(
                f"{group}.{name}: a name is lower-case letters, digits and single underscores "
                "(DVC and the overrides give the dot a meaning of its own)"
            )


def check(experiment: Experiment) -> None:
    """All checks that types cannot make; raises ValueError starting with the dotted key."""
    for group in ("data", "models", "arms", "runs"):
        entries = getattr(experiment, group)
        if not entries and group != "arms":
            raise ValueError(f"{group}: empty; an experiment needs at least one entry")
        check_names(group, entries)
    for name, data in experiment.data.items():
        if isinstance(data, TextData):
            check_names(f"data.{name}.parts", data.parts)
    if not NAME.fullmatch(experiment.name):
        raise ValueError(
            f"name: {experiment.name!r} is not lower-case letters, digits, underscores"
        )
    for name, data in experiment.data.items():
        check_part(f"data.{name}", data)
    check_part("compute", experiment.compute)
    check_part("evaluation", experiment.evaluation)
    check_names("suite.tasks", experiment.suite.tasks)
    check_part("suite", experiment.suite)
    for name, preset in experiment.models.items():
        check_part(f"models.{name}.architecture", preset.architecture)
        check_part(f"models.{name}.optim", preset.optim)
    for name in experiment.suite_runs:
        if name not in experiment.runs:
            raise ValueError(f"suite_runs.{name}: not under runs; conf/config.yaml makes this list")
    for group in ("arms", "runs"):  # arms first: a mistake is where it was made
        for name, run in getattr(experiment, group).items():
            check_run(experiment, f"{group}.{name}", run)


def check_run(experiment: Experiment, key: str, run: Run) -> None:
    for group, wanted in (("data", run.data), ("models", run.model)):
        if wanted not in (known := getattr(experiment, group)):
            field_name = group.removesuffix("s")
            raise ValueError(f"{key}.{field_name}: {wanted!r} is not one of {', '.join(known)}")
    preset = experiment.models[run.model]
    if run.kappa_bits is not None:
        bits = preset.architecture.latent_bits
        if not bits:
            raise ValueError(
                f"{key}.kappa_bits: a Free Transformer needs latent bits, but "
                f"models.{run.model}.architecture.latent_bits is 0; null makes a baseline"
            )
        if not 0 <= run.kappa_bits <= bits:
            raise ValueError(
                f"{key}.kappa_bits: {run.kappa_bits} is outside 0 … {bits}, the latent bits of "
                f"models.{run.model}"
            )
    compute, rows = experiment.compute, preset.optim.batch_size
    if rows % (compute.accumulate * compute.workers):
        what = "workers" if rows % compute.workers else "accumulate"
        times = "" if rows % getattr(compute, what) else f" × compute.workers {compute.workers}"
        raise ValueError(
            f"compute.{what}: {getattr(compute, what)}{times} does not divide "
            f"models.{run.model}.optim.batch_size {rows}"
        )
    batch = preset.optim.batch_size * preset.architecture.context
    if run.tokens < batch:
        raise ValueError(f"{key}.tokens: {run.tokens} is less than one batch of {batch} tokens")
    if not 0 <= run.seed < 1 << 32:
        raise ValueError(f"{key}.seed: {run.seed} is outside 0 … 2^32 − 1")
    if run.extra_blocks and (run.extra_blocks < 0 or run.kappa_bits is not None):
        raise ValueError(
            f"{key}.extra_blocks: {run.extra_blocks}; a baseline may have some, a Free Transformer "
            "has its encoder"
        )
    steps = [0, *(budget // batch for budget in run.budgets), run.tokens // batch]
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError(
            f"{key}.budgets: {run.budgets} do not rise from one batch of {batch} tokens to less "
            f"than the run's {run.tokens}"
        )
    optim, least = preset.optim, experiment.budgets(run)[0]
    start = decay_start(optim.decay, least.steps)
    if optim.schedule is Schedule.wsd and start < optim.warmup_steps:
        raise ValueError(
            f"{key}.{'budgets' if run.budgets else 'tokens'}: {least.listed} tokens are "
            f"{least.steps} steps, whose decay begins at {start}, before the end of "
            f"models.{run.model}.optim.warmup_steps {optim.warmup_steps}"
        )
    if not 0 <= run.kappa_warmup_steps <= least.steps:
        raise ValueError(
            f"{key}.kappa_warmup_steps: {run.kappa_warmup_steps} is outside 0 … {least.steps}, "
            f"the steps of {least.listed} tokens"
        )
    data = experiment.data[run.data]
    if isinstance(data, ProcessData):
        if preset.architecture.document_mask:
            raise ValueError(
                f"models.{run.model}.architecture.document_mask: for text; the data of {key} are "
                "rows, each a document already"
            )
        predicted = PROCESSES[data.source].row - 1
        if preset.architecture.context != predicted:
            raise ValueError(
                f"models.{run.model}.architecture.context: {preset.architecture.context} does not "
                f"fit the {data.source} task of {key}, whose sequences have {predicted} predicted "
                "tokens"
            )
