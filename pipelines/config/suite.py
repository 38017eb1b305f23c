"""The settings of a suite: the benchmarks that runs are scored on, and how."""

from dataclasses import dataclass, field
from enum import StrEnum

from omegaconf import MISSING

from ftmodel.config import limited
from pipelines.host.errors import not_one_of


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

    @property
    def label(self) -> str:
        return self.key.partition(",")[0] if self.metric is None else self.metric

    def validate(self) -> None:
        metric, comma, chosen = self.key.partition(",")
        if not (metric and comma and chosen):
            raise ValueError(f"key: {self.key!r} is not <metric>,<filter>, as in 'acc_norm,none'")
        if self.metric == "":
            raise ValueError("metric: empty")


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
