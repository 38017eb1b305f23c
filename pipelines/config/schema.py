"""The typed schema of an experiment: every setting, and the one place that has its default.

Hydra composes ``conf/`` onto these types (hydra_plugins/schema.py), so that every default is in
``params.yaml``, where DVC sees it change. Every stage reads that file through
:func:`pipelines.config.load.load_experiment`, which checks all of it before any work starts and
fills in nothing.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from omegaconf import MISSING

from ftmodel.config import (
    LATENT_ONLY,
    Encoder,
    FreeBits,
    Gradient,
    Inject,
    Map,
    ModelConfig,
    Per,
    Prior,
    given,
    limited,
)
from pipelines.config.init_from import InitFrom
from pipelines.host.errors import not_one_of

AUTO = "auto"
NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


class Schedule(StrEnum):
    cosine = "cosine"  # falls to zero; smaller budgets are snapshots on the way
    # warm-up, stable, decay: each budget branches off the stable part and decays on its own
    wsd = "wsd"


class OptimizerName(StrEnum):
    adamw = "adamw"  # for all parameters
    muon = "muon"  # for the matrices of blocks, the encoder's too; AdamW for all else


@dataclass
class Optim:
    """Linear warm-up, and a schedule that ends at zero; gradients clipped by norm.

    Muon's updates have the RMS of AdamW's in long trainings (Liu et al. 2025, arXiv 2502.16982); in
    short ones AdamW's are larger, and Muon needs a higher learning rate.
    """

    name: OptimizerName = OptimizerName.adamw  # the optimizer
    batch_size: int = limited(MISSING, at_least=1)  # sequences per optimizer step
    lr: float = limited(MISSING, above=0)  # peak learning rate
    # factor on lr for the latent: encoder, its read-out, post-sampler and a learned prior
    latent_lr: float = limited(1.0, latent_only=True, above=0)
    # width D at which lr suits the matrices of blocks. At another D their learning rate is lr times
    # this over D, under Muon times the root of that; null: no scaling
    width_scaling: int | None = limited(None, at_least=1)
    warmup_steps: int = limited(100, at_least=0)  # steps over which the learning rate rises
    schedule: Schedule = Schedule.cosine  # the learning rate after the warm-up
    # under wsd, the share of each budget that is spent on the decay
    decay: float = limited(0.2, above=0, below=1)
    weight_decay: float = limited(0.01, at_least=0)  # AdamW's, on matrices but not on norms
    beta1: float = limited(0.9, at_least=0, below=1)  # decay rate of AdamW's first moment
    beta2: float = limited(0.95, at_least=0, below=1)  # decay rate of AdamW's second moment
    clip: float = limited(1.0, above=0)  # largest norm of the gradient
    # skip a step whose gradient norm is above this times the median of the last 100: no weight and
    # no moment changes; null: never
    skip_spikes: float | None = limited(None, above=1)


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


@dataclass
class Arm:
    """One side of the comparison: what its runs have in common, whatever their seeds."""

    data: str = MISSING  # the name of an entry of `data`, a file of conf/data/
    model: str = MISSING  # the name of an entry of `models`, a file of conf/model/
    # κ, the free-bits threshold, in bits per token. null is the baseline, the same model without a
    # latent. 0 is a control that keeps the latent machinery but penalises any information in z
    kappa_bits: float | None = MISSING
    # weight of the hinge max(0, KL − κ) in the loss; 1 in the paper, and for a baseline
    beta: float = limited(1.0, latent_only=True, above=0)
    # steps over which κ rises from 0; none in the paper, and none for a baseline
    kappa_warmup_steps: int = field(default=0, metadata=LATENT_ONLY)
    tokens: int = MISSING  # training budget in tokens, exact to one batch
    # smaller budgets in tokens at which the model is kept and measured too; another list makes
    # another run
    budgets: list[int] = field(default_factory=list)
    # blocks added to a baseline, to match the parameters of a Free Transformer's encoder block
    extra_blocks: int = limited(0, at_least=0)
    # n, the random tokens that a baseline reads before every sequence, of 16 of their own: the
    # cheapest rival to z (Nagarajan et al. 2025). Not with document_mask
    random_prefix: int = limited(0, at_least=0)
    init_from: InitFrom = field(default_factory=InitFrom)
    latent: DesignChanges = field(default_factory=DesignChanges, metadata=LATENT_ONLY)
    # H; null: that of the model's preset
    latent_bits: int | None = field(default=None, metadata=LATENT_ONLY)
    # the block that reads z, counted from 1; null: that of the model's preset
    latent_block: int | None = field(default=None, metadata=LATENT_ONLY)

    @property
    def design_settings(self) -> dict[str, Any]:
        """The arm's own settings of the latent, including H and the block that reads z."""
        design = {f"latent.{name}": value for name, value in given(self.latent).items()}
        own = {"latent_bits": self.latent_bits, "latent_block": self.latent_block}
        return design | {name: value for name, value in own.items() if value is not None}


@dataclass
class Run(Arm):
    """One training run."""

    # seed of the initial weights, the order of the data and the noise of z
    seed: int = limited(0, at_least=0, below=1 << 32)


@dataclass
class Training:
    """What dvc.yaml must know about a run to train it."""

    data: str = MISSING
    model: str = MISSING
    parent: str = MISSING  # the path of what it starts from; of a run from random weights its data


class Precision(Enum):
    auto = "auto"  # bf16 on a GPU that supports it, else float32
    float32 = "float32"  # all computation in float32
    bf16 = "bf16"  # matrix products in bfloat16; losses stay float32


class Strategy(Enum):
    ddp = "ddp"  # every worker holds the whole model
    fsdp = "fsdp"  # parameters are sharded over the workers (FSDP2)


@dataclass
class Compute:
    """Where and how training runs: precision changes results, the rest only memory and speed."""

    precision: Precision = Precision.auto  # precision of training
    # whether to use torch.compile; null: if the run is long enough to pay for it and a trial works
    compile: bool | None = None
    activation_checkpointing: bool = False  # recompute blocks in the backward pass
    accumulate: int = limited(1, at_least=1)  # micro-batches per step
    workers: int = limited(1, at_least=1)  # processes that share each batch; more than one on Ray
    cpus_per_worker: int = limited(1, at_least=1)  # cores of a worker on Ray
    # threads of one process on a CPU, without Ray; null: one for each core that is idle
    threads: int | None = limited(None, at_least=1, at_most=1024)
    # GPUs of a worker, or of a run in one process; null: 1 where there are GPUs, else 0. With a
    # fraction, runs of one worker share a GPU
    gpus_per_worker: float | None = limited(None, "a worker drives one GPU", at_least=0, at_most=1)
    strategy: Strategy = Strategy.ddp  # how several workers share a model
    max_failures: int = limited(3, at_least=0)  # lost workers or nodes that a run survives
    # trace ten steps of each training, and print the operations that take longest
    profile: bool = False

    def validate(self) -> None:
        if self.workers > 1 and self.gpus_per_worker and self.gpus_per_worker < 1:
            raise ValueError(
                f"gpus_per_worker: {self.gpus_per_worker}, but workers that share a batch need a "
                "GPU each"
            )
        if self.strategy is Strategy.fsdp and self.workers == 1:
            raise ValueError("strategy: fsdp shards a model over workers, but compute.workers is 1")


@dataclass
class EvaluationConfig:
    """How much is spent on measuring; the same for every run of an experiment."""

    # largest number of held-out tokens that are scored; auto: one for 64 that the run is trained
    # on, at least 4,096 and at most 65,536; null: all
    tokens: int | str | None = AUTO
    # training tokens between two evaluations in the loop, each on held-out windows with 3 % as many
    # tokens; null: none
    every_tokens: int | None = limited(None, at_least=1)
    batch_tokens: int = limited(4096, at_least=1)  # tokens scored at once; less needs less memory
    # K, the particles of the filter, at least 1; auto: as many as the run needs, calibrated on
    # training text
    particles: int | str = AUTO
    # the most particles that auto may take; null: 512, or fewer, so that the run's evaluation does
    # no more work than its training
    max_particles: int | None = limited(None, at_least=1)
    # independent filters; their differences give the bound's own error
    filters: int = limited(2, at_least=2)
    # effective sample size, as a share of the particles, below which they are resampled
    resample_below: float = limited(0.5, at_least=0, at_most=1)
    # share of the encoder's logits in the proposal of z: 0 is the prior, 1 the posterior. null:
    # with particles: auto, what suits the run; else 0 up to κ = 1, 1/8 above, 1/4 with per: every
    proposal: float | None = limited(None, at_least=0, at_most=1)
    # K of the IWAE and prior-sample bounds
    iwae_samples: int = limited(16, at_least=1)
    # rows that a Free Transformer writes, of which a lower bound is measured, too; 0 leaves it out
    own_text_rows: int = limited(24, at_least=0)
    # groups of generated sequences of the target task; a group shares its prompt
    groups: int = limited(64, at_least=2)
    group_size: int = limited(8, at_least=5)  # sequences in each group
    # sequences that the latent probe is fitted to
    probe_sequences: int = limited(16_384, at_least=1)
    # held-out tokens of the measurement of persistence; 0 leaves it out
    bit_tokens: int = limited(16_384, at_least=0)
    # held-out tokens of the swap and of measuring one code per sequence; 0 leaves them out
    swap_tokens: int = limited(16_384, at_least=0)
    # held-out prompts of the measurement of steering; 0 leaves it out
    steering_prompts: int = limited(8, at_least=0)
    steering_z: int = limited(4, at_least=2)  # pinned z for each prompt
    steering_draws: int = limited(4, at_least=2)  # continuations with each pinned z
    steering_length: int = limited(32, at_least=1)  # tokens of a continuation that are compared
    # seed of all random numbers of the evaluation
    seed: int = limited(0, at_least=0, below=1 << 32)

    def validate(self) -> None:
        for name in ("particles", "tokens"):
            value = getattr(self, name)
            wrong = value != AUTO if isinstance(value, str) else value is not None and value < 1
            if wrong:
                raise ValueError(f"{name}: {value} must be at least 1, or {AUTO}")


class Scoring(StrEnum):
    """Which z the probability of an answer is averaged over. The prompt's z come from the encoder,
    which reads the prompt alone. The answer's z come from the prior.
    """

    marginal = "marginal"  # mean probability over `samples` draws of z
    posterior_prompt = "posterior_prompt"  # a single draw of z, the paper's procedure


class Weights(StrEnum):
    """The precision of the weights that generate text."""

    float32 = "float32"  # weights as trained
    # large matrices rounded to bfloat16, on a CPU that multiplies it: twice as fast if large
    bf16 = "bf16"


@dataclass
class SuiteTask:
    """A benchmark; the suite calls it by its name in the paper's tables."""

    task: str = MISSING  # name of a task in the folder tasks/ or in lm_eval
    key: str = MISSING  # lm_eval's name of the score: `<metric>,<filter>`
    metric: str | None = None  # name of the metric in the report; null: lm_eval's
    # examples in the prompt; null: as many as the task says
    shots: int | None = limited(None, at_least=0)
    # a field of its documents; those with the same value, such as the questions on one passage,
    # count as one in errors; null: documents are independent
    cluster: str | None = None

    @property
    def label(self) -> str:
        return self.key.partition(",")[0] if self.metric is None else self.metric

    def validate(self) -> None:
        metric, comma, chosen = self.key.partition(",")
        if not (metric and comma and chosen):
            raise ValueError(f"key: {self.key!r} is not <metric>,<filter>, as in 'acc_norm,none'")
        for name in ("metric", "cluster"):
            if getattr(self, name) == "":
                raise ValueError(f"{name}: empty")


@dataclass
class PassAtK:
    """Several answers to each prompt: how probable it is that one of k is right, and how many of
    them differ. Measured on finished models only, not at smaller budgets.
    """

    # n, the answers to each prompt, for each way of varying them; 0 leaves the measurement out
    samples: int = limited(0, at_least=0, at_most=10_000)
    k: list[int] = field(default_factory=lambda: [1, 10])  # k of pass@k; at most n
    # temperatures at which tokens are drawn
    temperatures: list[float] = field(default_factory=lambda: [0.8])
    tasks: list[str] = field(default_factory=list)  # names of tasks under suite.tasks

    def validate(self) -> None:
        if not self.samples:
            return
        for name in ("k", "temperatures", "tasks"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name}: empty, but samples is {self.samples}")
            if len({*values}) < len(values):
                raise ValueError(f"{name}: {values} has a value twice")
        for i, k in enumerate(self.k):
            if not 1 <= k <= self.samples:
                raise ValueError(f"k.{i}: {k} is outside 1 … {self.samples}, the number of samples")
        for i, temperature in enumerate(self.temperatures):
            if not temperature > 0:
                raise ValueError(f"temperatures.{i}: {temperature} must be positive")


@dataclass
class Suite:
    """Settings of a suite, the same for every run on text of an experiment."""

    name: str = MISSING  # name of the suite, a file of conf/suite/; "none" if there are no tasks
    tasks: dict[str, SuiteTask] = field(default_factory=dict)
    # largest number of documents per task (MMLU: per subject); null: all
    limit: int | None = limited(None, at_least=1)
    scoring: Scoring = Scoring.marginal  # how a Free Transformer is scored
    samples: int = limited(8, at_least=1)  # K of `marginal`
    run_code: bool = False  # whether to run programs that a model wrote, in the sandbox
    # whether the stage ends with exit code 2, after all is scored and recorded, if a task failed
    strict: bool = False
    # tokens read at once, padding included; less needs less memory
    batch_tokens: int = limited(16_384, at_least=1)
    weights: Weights = Weights.float32  # precision of weights in generation on a CPU
    pass_at_k: PassAtK = field(default_factory=PassAtK)
    # seed of z, of sampled tokens and of examples in prompts
    seed: int = limited(0, at_least=0, below=1 << 32)

    def validate(self) -> None:
        if (self.name == "none") != (not self.tasks):
            what = "has tasks" if self.tasks else "has no tasks"
            raise ValueError(
                f"name: {self.name}, which {what}; the suite without tasks is suite=none"
            )
        for i, task in enumerate(self.pass_at_k.tasks if self.pass_at_k.samples else []):
            if task not in self.tasks:
                raise ValueError(f"pass_at_k.tasks.{i}: {not_one_of(task, self.tasks)}")


class Bound(Enum):
    """How an arm's bound is expected to compare with another's."""

    lower = "lower"  # the arm is better
    higher = "higher"  # the arm is worse
    equivalent = "equivalent"  # any difference is smaller than `smallest_effect`

    @classmethod
    def _missing_(cls, value: object) -> "Bound | None":
        """What manifests of earlier versions say, which could fail but never come true."""
        return cls.equivalent if value == "no_difference" else None


@dataclass
class Expectation:
    """What is expected of two arms, named as in the report, before they are trained."""

    arm: str = MISSING  # the name of an arm
    than: str = MISSING  # another arm, of the same data, model, token budget and parent
    bound: Bound = MISSING  # how the bound of `arm` compares with that of `than`
    because: str | None = None  # the reason, shown in the report
    # of these two arms; null: the experiment's
    smallest_effect: float | None = limited(None, above=0)

    def __str__(self) -> str:
        effect, two = self.smallest_effect, f"the bounds of {self.arm} and {self.than}"
        if self.bound is not Bound.equivalent:
            words = f"the bound of {self.arm} {self.bound.value} than that of {self.than}"
            words += "" if effect is None else f" (smallest effect {effect:g})"
        elif effect is None:  # in manifests of earlier versions
            words = f"no difference between {two}"
        else:
            words = f"{two} equivalent (within {effect:g})"
        reason = " ".join((self.because or "").split()).removesuffix(".")
        return f"{words}, because {reason}" if reason else words


@dataclass
class Experiment:
    """Everything that params.yaml says."""

    name: str = MISSING  # name of the experiment and of its folders
    question: str | None = None  # what the experiment is to answer; the report begins with it
    expectation: list[Expectation] = field(default_factory=list)  # stated before the runs
    # bits per token or byte, the unit of the bounds: a difference that is surely smaller is
    # `equivalent` to none; null: every difference matters
    smallest_effect: float | None = limited(None, above=0)
    data: dict[str, Any] = field(default_factory=dict)  # the entries of data, by name
    models: dict[str, Preset] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)  # the seeds with which each arm is trained
    arms: dict[str, Arm] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    compute: Compute = field(default_factory=Compute)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    suite: Suite = field(default_factory=Suite)
    suite_runs: dict[str, str] = field(default_factory=dict)  # those it scores; made by Hydra
    trainings: dict[str, Training] = field(default_factory=dict)  # of all runs; made by Hydra
