"""The typed schema of an experiment: every setting, with its default, which stands here alone.

Hydra composes ``conf/`` onto these types (hydra_plugins/schema.py), so that every default is in
``params.yaml``, where DVC sees it change. Every stage reads that file through
:func:`pipelines.config.load.load_experiment`, which checks all of it before any work starts and
fills in nothing.
"""

import re
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any

from omegaconf import MISSING

from ftmodel.designs.design import (
    Encoder,
    FreeBits,
    Gradient,
    Inject,
    LatentDesign,
    Map,
    Per,
    Prior,
)
from ftmodel.model.config import ModelConfig
from ftmodel.model.limits import limited
from pipelines.config.data import TextData
from pipelines.config.derived import Budget
from pipelines.config.init_from import InitFrom
from pipelines.config.suite import Suite
from pipelines.config.values import keep_booleans_as_written

AUTO = "auto"
NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


class Schedule(StrEnum):
    cosine = "cosine"  # to zero
    wsd = "wsd"  # warm-up, stable, decay: budgets branch off the stable part


@dataclass
class Optim:
    """AdamW with linear warm-up and a schedule that ends at zero; gradients clipped by norm."""

    batch_size: int = limited(MISSING, at_least=1)  # sequences
    lr: float = limited(MISSING, above=0)  # at the top of the schedule
    # factor on lr for the latent: encoder, its read-out, post-sampler and a learned prior
    latent_lr: float = limited(1.0, above=0)
    warmup_steps: int = limited(100, at_least=0)
    schedule: Schedule = Schedule.cosine
    # of a budget, that it decays for under wsd
    decay: float = limited(0.2, above=0, below=1)
    weight_decay: float = limited(0.01, at_least=0)  # on matrices, not on norms
    beta1: float = limited(0.9, at_least=0, below=1)
    beta2: float = limited(0.95, at_least=0, below=1)
    clip: float = limited(1.0, above=0)


@dataclass
class Preset:
    """A model size with the recipe that trains it; ``latent_bits`` is for its Free Transformers."""

    architecture: ModelConfig = MISSING
    optim: Optim = field(default_factory=Optim)


@dataclass
class DesignChanges:
    """How an arm's design of the latent differs from its preset's, ``architecture.latent``."""

    encoder: Encoder | None = None
    encoder_layers: int | None = None
    inject: Inject | None = None
    per: Per | None = None
    every: int | None = None
    map: Map | None = None
    prior: Prior | None = None
    free_bits: FreeBits | None = None
    gradient: Gradient | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are given."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class Arm:
    """One side of the comparison: what its runs have in common, whatever their seeds."""

    data: str = MISSING  # a name under `data`
    model: str = MISSING  # a name under `models`
    kappa_bits: float | None = MISSING  # κ in bits per token; null is the baseline
    beta: float = limited(1.0, above=0)  # weight of the hinge; the paper has none, nor a baseline
    kappa_warmup_steps: int = 0  # over which κ rises from 0; the paper has none, nor a baseline
    tokens: int = MISSING  # budget, exact to one batch
    # smaller ones in tokens, whose models are kept and measured too; another list is another run
    budgets: list[int] = field(default_factory=list)
    # a control: of a baseline, for the encoder block of its Free Transformer
    extra_blocks: int = limited(0, at_least=0)
    init_from: InitFrom = field(default_factory=InitFrom)
    latent: DesignChanges = field(default_factory=DesignChanges)
    latent_bits: int | None = None  # H; null: the preset's
    latent_block: int | None = None  # the block that reads z, from 1; null: the preset's

    @property
    def design_settings(self) -> dict[str, Any]:
        """Its own settings of the latent, H and the block that reads z among them."""
        design = {f"latent.{name}": value for name, value in self.latent.settings.items()}
        own = {"latent_bits": self.latent_bits, "latent_block": self.latent_block}
        return design | {name: value for name, value in own.items() if value is not None}


@dataclass
class Run(Arm):
    """One training run."""

    seed: int = limited(0, at_least=0, below=1 << 32)


@dataclass
class Training:
    """What dvc.yaml must know of a run to train it."""

    data: str = MISSING
    model: str = MISSING
    parent: str = MISSING  # the path of what it starts from; of a run from random weights its data


class Precision(Enum):
    auto = "auto"  # bf16 on a GPU that has it, else float32
    float32 = "float32"
    bf16 = "bf16"


class Strategy(Enum):
    ddp = "ddp"  # every worker holds the whole model
    fsdp = "fsdp"  # parameters are sharded over the workers: FSDP2


@dataclass
class Compute:
    """Where and how training runs: precision changes results, the rest only memory and speed."""

    precision: Precision = Precision.auto
    compile: bool | None = None  # torch.compile; null: if the run is long enough to pay for it
    activation_checkpointing: bool = False  # blocks are computed again in the backward pass
    accumulate: int = limited(1, at_least=1)  # micro-batches a step
    workers: int = limited(1, at_least=1)  # processes that share each batch; more than one on Ray
    cpus_per_worker: int = limited(1, at_least=1)
    # of PyTorch, without Ray; null: one for each core that is idle
    threads: int | None = limited(None, at_least=1, at_most=1024)
    # null: 1 where the cluster has GPUs, else 0
    gpus_per_worker: float | None = limited(None, "a worker drives one GPU", at_least=0, at_most=1)
    strategy: Strategy = Strategy.ddp
    max_failures: int = limited(3, at_least=0)  # of workers or nodes, before the run fails

    def validate(self) -> None:
        if self.workers > 1 and self.gpus_per_worker and self.gpus_per_worker < 1:
            raise ValueError(
                f"gpus_per_worker: {self.gpus_per_worker}, but workers that share a batch need a "
                "GPU each"
            )
        if self.strategy is Strategy.fsdp and self.workers == 1:
            raise ValueError("strategy: fsdp shares a model out, but compute.workers is 1")


@dataclass
class EvaluationConfig:
    """How much is spent on measuring; the same for every run of an experiment."""

    # held-out tokens scored, at most; null: all
    tokens: int | None = limited(65_536, at_least=1)
    batch_tokens: int = limited(4096, at_least=1)  # scored at once
    # K of the filtering bound, by which Free Transformers are compared; auto: as many as a run
    # needs, found on training text
    particles: int | str = AUTO
    max_particles: int = limited(512, at_least=1)  # that auto may take
    # independent ones; how far they differ is the bound's own error
    filters: int = limited(2, at_least=2)
    # the effective sample size at which it resamples, over K
    resample_below: float = limited(0.5, at_least=0, at_most=1)
    # what the encoder's logits are multiplied by to propose z: 0 is the prior, 1 the posterior;
    # null: what suits a run best under particles: auto; else 0 up to κ = 1, 1/8 above, 1/4 with
    # latent.per: every (one z per sequence has no filter)
    proposal: float | None = limited(None, at_least=0, at_most=1)
    # K of the IWAE and the prior-sample bound, shown beside it
    iwae_samples: int = limited(16, at_least=1)
    groups: int = limited(64, at_least=2)  # of generations that share a prompt
    group_size: int = limited(8, at_least=5)
    # that the probe of the target's position is fitted to
    probe_sequences: int = limited(16_384, at_least=1)
    # what z does in text; 0 leaves a measurement out:
    # held-out tokens whose z is related to the tokens that follow
    bit_tokens: int = limited(16_384, at_least=0)
    # held-out tokens that are scored with the z of other texts
    swap_tokens: int = limited(16_384, at_least=0)
    # beginnings of held-out text, each continued with the same z
    steering_prompts: int = limited(8, at_least=0)
    steering_z: int = limited(4, at_least=2)  # different pinned z
    steering_draws: int = limited(4, at_least=2)  # continuations with each of them
    steering_length: int = limited(32, at_least=1)  # tokens of a continuation that are compared
    seed: int = limited(0, at_least=0, below=1 << 32)

    def validate(self) -> None:
        wrong = self.particles != AUTO if isinstance(self.particles, str) else self.particles < 1
        if wrong:
            raise ValueError(f"particles: {self.particles} must be at least 1, or {AUTO}")


class Bound(Enum):
    """How an arm's bound is expected to compare with another's."""

    lower = "lower"
    higher = "higher"
    no_difference = "no_difference"

    @property
    def verdict(self) -> str:
        """As the rule for differences says it."""
        return str(self.value).replace("_", " ")


@dataclass
class Expectation:
    """What is expected of two arms before they are trained; the report says whether it came true.

    Arms are named as in the report (pipelines/config/arms.py).
    """

    arm: str = MISSING
    than: str = MISSING  # another arm, of the same data, model, token budget and parent
    bound: Bound = MISSING  # that of `arm`, held against that of `than`
    because: str | None = None

    def __str__(self) -> str:
        if self.bound is Bound.no_difference:
            words = f"no difference between the bounds of {self.arm} and {self.than}"
        else:
            words = f"the bound of {self.arm} {self.bound.value} than that of {self.than}"
        reason = " ".join((self.because or "").split()).removesuffix(".")
        return f"{words}, because {reason}" if reason else words


@dataclass
class Experiment:
    name: str = MISSING
    question: str | None = None  # what the experiment is to answer; shown first in the report
    expectation: list[Expectation] = field(default_factory=list)  # stated before the runs
    data: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Preset] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)  # with which `arms` make `runs`
    arms: dict[str, Arm] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    compute: Compute = field(default_factory=Compute)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    suite: Suite = field(default_factory=Suite)
    suite_runs: dict[str, str] = field(default_factory=dict)  # those it scores; made by Hydra
    trainings: dict[str, Training] = field(default_factory=dict)  # of all runs; made by Hydra

    def model_config(self, run: Arm) -> ModelConfig:
        """The preset's architecture with the run's design of the latent; a baseline has none."""
        architecture = self.models[run.model].architecture
        if run.kappa_bits is None:
            blocks = architecture.n_layers + run.extra_blocks
            return replace(
                architecture,
                n_layers=blocks,
                latent_bits=0,
                latent_block=None,
                latent=LatentDesign(),
            )
        bits = architecture.latent_bits if run.latent_bits is None else run.latent_bits
        block = architecture.latent_block if run.latent_block is None else run.latent_block
        design = architecture.latent.changed(run.latent.settings)
        return replace(architecture, latent_bits=bits, latent_block=block, latent=design)

    def batch_tokens(self, run: Arm) -> int:
        """Tokens that an optimizer step predicts."""
        preset = self.models[run.model]
        return preset.optim.batch_size * preset.architecture.context

    def budgets(self, run: Arm) -> list[Budget]:
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


keep_booleans_as_written(Compute, InitFrom, ModelConfig, Suite, TextData)
