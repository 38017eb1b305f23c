"""What `suite` leaves in results/<experiment>/<run>/suite.json."""

from dataclasses import dataclass, field
from typing import Any

from pipelines.artifacts.budget_results import BudgetResult
from pipelines.artifacts.checkpoint import Manifest


@dataclass(frozen=True)
class TaskScore:
    value: float
    se: float | None = None  # standard error over documents


@dataclass(frozen=True)
class TaskResult(TaskScore):
    """A benchmark as it was run, and its score."""

    metric: str = ""
    task: str = ""  # its name in the harness, or of ours
    higher_is_better: bool = True
    documents: int = 0
    shots: int = 0
    version: str = ""
    truncated: int = 0  # requests cut from the left
    mc_error: float | None = None  # mean over requests, nats
    undecided: float | None = None  # share of documents whose two best choices z's noise may swap
    seconds: float = 0.0
    subtasks: dict[str, float] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)  # where its data are from; none of our own
    notes: list[str] = field(default_factory=list)  # what its data have otherwise than the hub's


@dataclass(frozen=True)
class SuiteBudget(BudgetResult):
    tasks: dict[str, TaskScore]


@dataclass(frozen=True)
class SuiteLastThird:
    n: int
    tasks: dict[str, float]


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
    limit: int | None = None
    budgets: list[SuiteBudget] = field(default_factory=list)
    last_third: SuiteLastThird | None = None
    manifest: Manifest | None = None  # of the checkpoint; None in early files
    settings: dict[str, Any] = field(default_factory=dict)  # the suite, as in params.yaml
