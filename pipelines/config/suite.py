"""What a suite may be: the benchmarks that runs are scored on, and how."""

from dataclasses import dataclass, field
from enum import StrEnum

from omegaconf import MISSING

from ftmodel.model.limits import limited


class Scoring(StrEnum):
    """Which z the probability of an answer is averaged over. The prompt's come from the encoder,
    which reads the prompt alone, the answer's from the prior.
    """

    marginal = "marginal"  # the mean probability of `samples` of them
    posterior_prompt = "posterior_prompt"  # a single one: the paper's procedure, to the letter


class Weights(StrEnum):
    """What text is generated with: weights as trained, or large matrices rounded to bfloat16."""

    float32 = "float32"
    bf16 = "bf16"


@dataclass
class SuiteTask:
    """A benchmark; its name in the suite is that of the paper's tables."""

    task: str = MISSING  # a name of the folder tasks/ or of lm_eval
    key: str = MISSING  # of lm_eval's figure: <metric>,<filter>
    metric: str | None = None  # what the report calls it; null: as lm_eval does
    # examples in the prompt; null: as many as the task says
    shots: int | None = limited(None, at_least=0)

    @property
    def label(self) -> str:
        return self.metric or self.key.partition(",")[0]

    def validate(self) -> None:
        metric, comma, chosen = self.key.partition(",")
        if not (metric and comma and chosen):
            raise ValueError(f"key: {self.key!r} is not <metric>,<filter>, as in 'acc_norm,none'")


@dataclass
class PassAtK:
    """Several answers to each prompt: how probable it is that one of k is right, and how many of
    them differ. Of finished models alone, not of those at smaller budgets.
    """

    # n of each prompt, for everything that may vary between them; 0: off
    samples: int = limited(0, at_least=0, at_most=10_000)
    k: list[int] = field(default_factory=lambda: [1, 10])  # n at most
    temperatures: list[float] = field(default_factory=lambda: [0.8])  # tokens are drawn at
    tasks: list[str] = field(default_factory=list)  # under suite.tasks; programs, mathematics

    def validate(self) -> None:
        if not self.samples:
            return
        for name in ("k", "temperatures", "tasks"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name}: empty, but samples is {self.samples}")
            if len({*values}) < len(values):
                raise ValueError(f"{name}: {values} has one of them twice")
        for i, k in enumerate(self.k):
            if not 1 <= k <= self.samples:
                raise ValueError(f"k.{i}: {k} is outside 1 … {self.samples}, the number of samples")
        for i, temperature in enumerate(self.temperatures):
            if not temperature > 0:
                raise ValueError(f"temperatures.{i}: {temperature} must be positive")


@dataclass
class Suite:
    """The same for every run on text of an experiment."""

    name: str = MISSING  # "none" if there are no tasks
    tasks: dict[str, SuiteTask] = field(default_factory=dict)
    # documents a task (of MMLU: a subject), at most; null: all
    limit: int | None = limited(None, at_least=1)
    scoring: Scoring = Scoring.marginal
    samples: int = limited(8, at_least=1)  # K of `marginal`
    run_code: bool = False  # whether programs that a model wrote are run, in the sandbox
    strict: bool = False  # whether the stage fails, in the end, if one of its tasks does
    batch_tokens: int = limited(16_384, at_least=1)  # read at once, padding included
    weights: Weights = Weights.float32  # of generation on a CPU; bf16: twice as fast if large
    pass_at_k: PassAtK = field(default_factory=PassAtK)
    # of z, of sampled tokens, of examples in prompts
    seed: int = limited(0, at_least=0, below=1 << 32)

    def validate(self) -> None:
        if (self.name == "none") != (not self.tasks):
            what = "has tasks" if self.tasks else "has no tasks"
            raise ValueError(f"name: {self.name}, which {what}; suite=none is the one without")
        for i, task in enumerate(self.pass_at_k.tasks if self.pass_at_k.samples else []):
            if task not in self.tasks:
                raise ValueError(f"pass_at_k.tasks.{i}: {task!r} is not under suite.tasks")
