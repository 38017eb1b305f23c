"""What a suite may be: the benchmarks that runs are scored on, and how."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from omegaconf import MISSING

MOST_SAMPLES = 10_000  # to a prompt


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
    shots: int | None = None  # examples in the prompt; null: as many as the task says

    @property
    def label(self) -> str:
        return self.metric or self.key.partition(",")[0]

    def validate(self) -> None:
        metric, comma, chosen = self.key.partition(",")
        if not (metric and comma and chosen):
            raise ValueError(f"key: {self.key!r} is not <metric>,<filter>, as in 'acc_norm,none'")
        if self.shots is not None and self.shots < 0:
            raise ValueError(f"shots: {self.shots} is negative")


@dataclass
class PassAtK:
    """Several answers to each prompt: how probable it is that one of k is right, and how many of
    them differ. Of finished models alone, not of those at smaller budgets.
    """

    samples: int = 0  # n of each prompt, for everything that may vary between them; 0: off
    k: list[int] = field(default_factory=lambda: [1, 10])  # n at most
    temperatures: list[float] = field(default_factory=lambda: [0.8])  # tokens are drawn at
    tasks: list[str] = field(default_factory=list)  # under suite.tasks; programs, mathematics

    def validate(self, tasks: Iterable[str]) -> None:
        """``tasks``: those of the suite."""
        if not 0 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"samples: {self.samples} is outside 0 … {MOST_SAMPLES}")
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
        for i, task in enumerate(self.tasks):
            if task not in tasks:
                raise ValueError(f"tasks.{i}: {task!r} is not under suite.tasks")


@dataclass
class Suite:
    """The same for every run on text of an experiment."""

    name: str = MISSING  # "none" if there are no tasks
    tasks: dict[str, SuiteTask] = field(default_factory=dict)
    limit: int | None = None  # documents a task (of MMLU: a subject), at most; null: all
    scoring: Scoring = Scoring.marginal
    samples: int = 8  # K of `marginal`
    run_code: bool = False  # whether programs that a model wrote are run, in the sandbox
    batch_tokens: int = 16_384  # read at once, padding included
    weights: Weights = Weights.float32  # of generation on a CPU; bf16: twice as fast if large
    pass_at_k: PassAtK = field(default_factory=PassAtK)
    seed: int = 0  # of z, of sampled tokens, of examples in prompts

    def validate(self) -> None:
        if (self.name == "none") != (not self.tasks):
            what = "has tasks" if self.tasks else "has no tasks"
            raise ValueError(f"name: {self.name}, which {what}; suite=none is the one without")
        for name in ("limit", "samples", "batch_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}: {value} must be at least 1")
        if not 0 <= self.seed < 1 << 32:
            raise ValueError(f"seed: {self.seed} is outside 0 … 2^32 − 1")
        for name, task in self.tasks.items():
            try:
                task.validate()
            except ValueError as error:
                raise ValueError(f"tasks.{name}.{error}") from None
        try:
            self.pass_at_k.validate(self.tasks)
        except ValueError as error:
            raise ValueError(f"pass_at_k.{error}") from None
