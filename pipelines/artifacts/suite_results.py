"""Types of results/<experiment>/<run>/suite.json, which `suite` writes."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.result_files import BudgetResult


@dataclass(frozen=True)
class TaskScore:
    value: float
    se: float | None = None  # standard error over documents


class Varied(StrEnum):
    """What differs between several answers to the same prompt."""

    z = "z"  # tokens are the likeliest ones
    tokens = "tokens"  # temperature alone: all answers of a Free Transformer have the same z
    z_and_tokens = "z_and_tokens"


@dataclass(frozen=True)
class Sampling:
    """A way to draw several answers to a prompt."""

    varied: Varied
    temperature: float  # of tokens; 0: the likeliest

    @property
    def name(self) -> str:
        """The way's name: z, tokens_0.8, z_and_tokens_0.8."""
        return f"{self.varied}_{self.temperature:g}" if self.temperature else self.varied.value


@dataclass(frozen=True)
class SampledScore:
    """Several answers to each prompt of a pass/fail benchmark; means and errors over prompts."""

    sampling: Sampling
    samples: int  # n, answers to each prompt
    pass_at: dict[int, TaskScore]  # by k: the unbiased estimate from n
    distinct: TaskScore  # distinct answers ÷ n
    seconds: float

    def figures(self) -> dict[str, TaskScore]:
        """Scores by name: pass_at_1, pass_at_10, distinct."""
        return {f"pass_at_{k}": score for k, score in self.pass_at.items()} | {
            "distinct": self.distinct
        }


# figures of each document: bits per byte of the right answer, and the number of its cluster
GOLD = "gold_bpb"
CLUSTER = "cluster"


def document_key(task: str, figure: str) -> str:
    """The key in suite_scores.json of another figure of a task's documents: GOLD or CLUSTER."""
    return f"{task}/{figure}"


def sampled_key(task: str, sampling: Sampling, figure: str) -> str:
    """The key of a figure in suite_scores.json, such as mbpp/tokens_0.8/pass_at_10."""
    return f"{task}/{sampling.name}/{figure}"


@dataclass(frozen=True)
class TaskResult(TaskScore):
    """A benchmark as it was run, and its score."""

    metric: str = ""
    task: str = ""  # its name in the harness or in tasks/
    higher_is_better: bool = True
    documents: int = 0
    clusters: int | None = None  # of documents, if they are not independent
    shots: int = 0
    version: str = ""
    truncated: int = 0  # requests cut from the left
    mc_error: float | None = None  # mean over requests, nats
    undecided: float | None = None  # share of documents whose two best choices z's noise may swap
    seconds: float = 0.0
    subtasks: dict[str, float] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)  # where its data are from; empty for our own
    sampled: list[SampledScore] = field(default_factory=list)  # one for each way
    gold_bpb: TaskScore | None = None  # bits per byte of the right answer, given the prompt

    def other_figures(self, name: str) -> dict[str, TaskScore]:
        """Scores beside the task's own, by their keys in suite_scores.json; ``name`` is the task's
        in the suite.
        """
        gold = {document_key(name, GOLD): self.gold_bpb} if self.gold_bpb else {}
        return gold | {
            sampled_key(name, each.sampling, figure): score
            for each in self.sampled
            for figure, score in each.figures().items()
        }


@dataclass(frozen=True)
class SuiteBudget(BudgetResult):
    tasks: dict[str, TaskScore]


@dataclass
class SuiteResults:
    """suite.json"""

    suite: str
    harness: str
    scoring: str
    samples: int
    seed: int
    tasks: dict[str, TaskResult]
    skipped: dict[str, str]  # why
    manifest: Manifest  # of the scored checkpoint
    settings: dict[str, Any]  # the suite, as in params.yaml
    limit: int | None = None
    budgets: list[SuiteBudget] = field(default_factory=list)
