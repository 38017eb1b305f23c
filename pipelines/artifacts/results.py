"""What `evaluate` and `suite` leave in results/<experiment>/<run>/: the types of these files, which
are written and read here alone.

A field that does not apply to a run is None, and not in its file.
"""

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from math import isnan, nan
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from ftmodel.analysis.label_information import Chance
from ftmodel.synthetic.target_scores import Scores
from pipelines.common.atomic_files import replace_file
from pipelines.common.errors import UserError

UNITS = {"bits_per_byte": "bits per byte", "bits_per_token": "bits per token"}


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out documents."""

    mean: float
    se: float  # standard error over documents; NaN for a single one
    spread: ClassVar[float] = nan  # over seeds: of a single run there is none

    def __str__(self) -> str:
        error = "" if isnan(self.se) else f" ± {self.se:.4f}"
        return f"{self.mean:.4f}{error}".replace("-", "−")


# ------------------------------------------------------------------------------- evaluation.json


@dataclass(frozen=True)
class Figures:
    """Held-out figures in one unit: of a baseline nll alone, of a Free Transformer the others."""

    nll: Estimate | None = None
    ce: Estimate | None = None  # reconstruction: no language-model loss
    kl: Estimate | None = None
    elbo: Estimate | None = None
    iwae: Estimate | None = None
    prior: Estimate | None = None
    exact: Estimate | None = None  # of the process itself, where it is known

    @property
    def bound(self) -> Estimate:
        """What runs are compared by: the exact NLL of a baseline, else the IWAE upper bound."""
        bound = self.nll or self.iwae
        assert bound, "neither a baseline's figures nor a Free Transformer's"
        return bound


@dataclass(frozen=True)
class BudgetFigures:
    """What was measured of a run's model at one of its token budgets."""

    tokens: int  # trained on by then
    listed: int  # as configured
    annealed: bool
    bits_per_token: Figures
    bits_per_byte: Figures | None = None


@dataclass(frozen=True)
class LastThird:
    """The mean bound of the budgets that lie in the last third of training."""

    n: int
    bits_per_token: float
    bits_per_byte: float | None = None


@dataclass(frozen=True)
class Between:
    at_least: float
    at_most: float | None = None


@dataclass(frozen=True)
class Reconstruction:
    """How sequences of the target task come back from the encoder's z; None: of no sequence."""

    valid: float
    distance: float | None = None  # of the targets, characters
    noise: float | None = None  # overlap of the places of '!'


@dataclass(frozen=True)
class LatentFigures:
    """What z of the target task says on its own, bits."""

    start_bits: float
    start_entropy: float
    aggregate_bits: Between
    reconstruction: Reconstruction


@dataclass
class LabelFigures(Chance):
    """What z says of a hidden label: of its best bit, and of all bits together."""

    whole: Chance
    per_bit: list[float]
    text: float  # bits that the text itself tells of it


@dataclass
class Evaluation:
    """evaluation.json"""

    documents: int
    tokens: int
    tokens_per_second: float  # scored
    bits_per_token: Figures
    bits_per_byte: Figures | None = None
    bytes: int | None = None
    iwae_by_samples: dict[int, Estimate] | None = None  # bits per token, by K
    gap_nats_per_token: Estimate | None = None  # bound minus exact
    elbo_gap_nats_per_token: Estimate | None = None
    fresh: Scores | None = None  # groups of the target task: each sequence with a z of its own
    pinned: Scores | None = None  # all of a group with one z
    latent: LatentFigures | None = None
    label: LabelFigures | None = None
    budgets: list[BudgetFigures] = field(default_factory=list)
    last_third: LastThird | None = None
    trained_tokens: int = 0
    parameters: int = 0
    collapsed: bool | None = None


# ---------------------------------------------------------------------------------- details.json


@dataclass(frozen=True)
class Sample:
    prompt: str
    text: str


@dataclass(frozen=True)
class ByOffset:
    """Mean KL by position relative to where the target starts."""

    offset: list[int]
    kl_bits: list[float]
    n: list[int]


@dataclass(frozen=True)
class LatentDetails:
    """By position: bits of the target's start told by z so far, and z's distance from fair bits."""

    start_bits: list[float | None]
    next_bits: list[float | None]
    from_start: ByOffset


@dataclass(frozen=True)
class CoinSequence:
    """P(next flip is a one) at each flip of a held-out sequence, exactly and by the model."""

    flips: str
    side: int
    ones: list[int]  # before each flip
    exact: list[float]
    given_side: float
    model: list[float] | None = None  # a baseline's
    encoder_z: list[list[float]] | None = None  # a Free Transformer's, for several z
    prior_z: list[list[float]] | None = None


@dataclass(frozen=True)
class CoinDetails:
    epsilon: float
    sequences: list[CoinSequence]


@dataclass(frozen=True)
class Training:
    """Where a run was trained; empty where it is not known."""

    git_revision: str = ""
    device: str = ""


@dataclass
class Details:
    """details.json"""

    kl_per_bit: list[float]  # bits per token; empty for a baseline
    bound_bits: list[float]  # of each held-out document
    document_tokens: list[int]
    document_bytes: list[int] | None = None
    samples: list[Sample] = field(default_factory=list)
    groups: dict[str, list[list[str]]] | None = None  # a few generated ones, fresh and pinned
    latent: LatentDetails | None = None
    coin: CoinDetails | None = None
    training: Training = field(default_factory=Training)

    def sizes(self, unit: str) -> Tensor:
        """Tokens or bytes of each held-out document: (n,)."""
        per_byte = unit == "bits_per_byte"
        return torch.tensor(
            self.document_bytes if per_byte else self.document_tokens, dtype=torch.float64
        )


# ------------------------------------------------------------------------------------ suite.json


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


@dataclass(frozen=True)
class SuiteBudget:
    tokens: int
    listed: int
    annealed: bool
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
    limit: int | None
    seed: int
    tasks: dict[str, TaskResult]
    skipped: dict[str, str]  # why
    budgets: list[SuiteBudget] = field(default_factory=list)
    last_third: SuiteLastThird | None = None


# ----------------------------------------------------------------------------- writing and reading

T = TypeVar("T")
adapter = cache(TypeAdapter)


def plain(value: Any) -> Any:
    """Dataclasses as mappings without the fields that are None."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items() if entry is not None}
    return [plain(entry) for entry in value] if isinstance(value, list) else value


def write(path: Path, content: Any) -> None:
    """Write one of the dataclasses above, or plain data, as JSON."""
    told = plain(content if isinstance(content, dict) else asdict(content))
    with replace_file(path) as file:
        file.write(json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n")


def read(path: Path, kind: type[T], stage: str) -> T:
    """Read a file of ``kind``; raises UserError, naming the ``stage`` that makes it, if it is
    missing or not such a file.
    """
    again = f"`dvc repro {stage}@{path.parent.name}` makes it"
    try:
        return adapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {again}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {place}: {first['msg']}; {again}") from None


def flat(content: Any, separator: str = "/", prefix: str = "") -> dict[str, float]:
    """Every number of a dataclass by its path, {"a/b": 1.0}; lists and texts are left out."""
    figures: dict[str, float] = {}
    for key, value in (content if isinstance(content, dict) else plain(asdict(content))).items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            figures |= flat(value, separator, f"{name}{separator}")
        elif isinstance(value, int | float):
            figures[name] = float(value)
    return figures
