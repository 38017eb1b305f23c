"""The types of the files that `evaluate` writes to results/<experiment>/<run>/: EvaluationResult of
evaluation.json, Details of details.json, and before each what it is made of. Those of `suite` are
in suite_results.py.

A field that does not apply to a run is None or an empty list, and not in its file.
"""

from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, ClassVar

import torch
from torch import Tensor

from ftmodel.analysis.calibration import Calibration
from ftmodel.analysis.information import NetInformation
from ftmodel.analysis.statistics import Chance, mean_and_error
from ftmodel.synthetic.target import Scores
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.result_files import BudgetResult

UNITS = {"bits_per_byte": "bits per byte", "bits_per_token": "bits per token"}  # names of fields


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out documents, with its standard error."""

    mean: float
    se: float  # standard error over documents; NaN for a single one
    # for a filtering bound: standard error over repeated filters, and half the variance of its log
    # estimate. While small, and if the filter converged, the bound lies about so far above the NLL
    monte_carlo: float | None = None
    half_variance: float | None = None
    converged: bool | None = None  # whether a calibration found enough particles; None: not asked
    spread: ClassVar[float] = nan  # over seeds; a single run has none

    @classmethod
    def over_documents(cls, totals: Tensor, sizes: Tensor | None = None) -> "Estimate":
        """Σ totals / Σ sizes over n documents, (n,) each."""
        found = mean_and_error(totals, sizes)
        return cls(found["mean"], found["se"])

    @classmethod
    def by_document(cls, totals: Tensor, document: Tensor, size: int = 1) -> "Estimate":
        """Σ totals / Σ sizes over documents: totals (n,) of ``size`` each, by ``document`` (n,)."""
        sums, counts = document_sums(totals, document)
        return cls.over_documents(sums, counts * size)

    @property
    def convergence(self) -> str:
        """The suffix for a number whose calibration did not find enough particles, else ""."""
        return " (not converged)" if self.converged is False else ""

    def __str__(self) -> str:
        error = "" if isnan(self.se) else f" ± {self.se:.4f}"
        return f"{self.mean:.4f}{error}".replace("-", "−") + self.convergence


def document_sums(values: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
    """Sum values (n, …) by ``document`` (n,): sums (D, …), and how many values each has (D,)."""
    _, index, counts = document.unique(return_inverse=True, return_counts=True)
    zeros = values.new_zeros(len(counts), *values.shape[1:])
    return zeros.index_add_(0, index, values), counts


@dataclass(frozen=True)
class BitContext:
    """A position in held-out text, and the encoder's probability that a bit is 1 there."""

    before: str
    token: str  # read by the model at the position
    after: str  # begins with the token predicted there
    probability: float


@dataclass(frozen=True)
class InformativeBit:
    bit: int
    kl: Estimate  # bits per token
    read: NetInformation  # information about the token that is read
    predicted: NetInformation  # about the one that is predicted
    set: list[BitContext] = field(default_factory=list)  # most certainly 1
    unset: list[BitContext] = field(default_factory=list)  # most certainly 0


@dataclass(frozen=True)
class Steering:
    """Mean distances (0 to 1) between continuations of the same prompt; standard errors over
    prompts. A baseline has only ``same``: its continuations differ by the tokens drawn.
    """

    same: Estimate  # with the same z
    different: Estimate | None = None  # with different z
    ratio: Estimate | None = None  # different ÷ same
    null_mean: float | None = None  # of the ratio, with z permuted among a prompt's continuations
    null_95: float | None = None  # 95 % quantile
    p_value: float | None = None  # (1 + permutations that reach the ratio) / (1 + permutations)


@dataclass(frozen=True)
class Swap:
    """Reconstruction cross-entropy, bits per token, by the source of z; no language-model loss."""

    texts: int
    own: Estimate  # the posterior given the text
    prior: Estimate
    other: Estimate  # the posterior given a text of another document
    permuted: Estimate  # its own, at permuted positions
    prior_minus_own: Estimate
    other_minus_own: Estimate
    permuted_minus_own: Estimate


@dataclass(frozen=True)
class Clusters:
    """How often a bit of z is the same in two texts (0 to 1); standard errors over documents."""

    same: Estimate  # two texts of one document
    different: Estimate  # two texts of different documents
    null_95: float  # 95 % quantile of the difference, texts permuted among documents
    p_value: float  # (1 + permutations that reach the difference) / (1 + permutations)


@dataclass(frozen=True)
class PathStep:
    """Change of reconstruction cross-entropy, bits per token, at a step from one z to another."""

    share: float  # of the differing bits that are taken from the other z
    start: Estimate  # for the first text, minus its CE with its own z
    end: Estimate  # for the other text, minus its CE with the first text's z
    random: Estimate  # for the first text, with as many random bits changed


@dataclass(frozen=True)
class SequenceZ:
    """Measurements of one z per sequence."""

    texts: int
    own: Estimate  # cross-entropy of texts with their own z, bits per token
    other: Estimate  # with the z of the text where their path begins
    path: list[PathStep]
    half: Estimate | None = None  # the other text's gain from half of the bits ÷ from all
    half_random: Estimate | None = None  # the same with as many random bits
    half_minus_random: Estimate | None = None
    clusters: Clusters | None = None  # None if no document has two texts


@dataclass(frozen=True)
class Figures:
    """Held-out figures in one unit."""

    nll: Estimate | None = None  # of a plain baseline
    ce: Estimate | None = None  # reconstruction: no language-model loss
    kl: Estimate | None = None
    elbo: Estimate | None = None
    iwae: Estimate | None = None
    prior: Estimate | None = None
    filtering: Estimate | None = None  # ``nll_bound`` of a model that reads noise
    use: Estimate | None = None  # use of z: filtering bound − ce
    waste: Estimate | None = None  # KL that buys nothing: kl − use
    exact: Estimate | None = None  # of the process, where it is known

    @property
    def bound(self) -> Estimate:
        """The figure to compare runs by: the exact NLL of a baseline, else the filtering bound."""
        bound = self.nll or self.filtering
        assert bound, "neither a baseline's figures nor a Free Transformer's"
        return bound


class InUnits:
    """Base of results that have Figures in a field for each of UNITS."""

    def figures(self, unit: str) -> Figures:
        """Figures in ``unit``; empty if there are none."""
        return getattr(self, unit) or Figures()


@dataclass(frozen=True)
class BudgetFigures(BudgetResult, InUnits):
    """Measurements of a run's model at one of its token budgets."""

    bits_per_token: Figures
    bits_per_byte: Figures | None = None


@dataclass(frozen=True)
class Between:
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Reconstruction:
    """How well the encoder's z rebuilds sequences of the target task; None: no sequence counts."""

    valid: float
    distance: float | None = None  # between targets, characters
    noise: float | None = None  # overlap of the positions of '!'


@dataclass(frozen=True)
class LatentFigures:
    """What z alone says on the target task, bits."""

    start_bits: float
    start_entropy: float
    aggregate_bits: Between
    reconstruction: Reconstruction


@dataclass
class LabelFigures(Chance):
    """What z says about a hidden label: its best bit, and all bits together."""

    whole: Chance
    per_bit: list[float]
    text: float  # bits that the text itself tells about it


@dataclass
class EvaluationResult(InUnits):
    """evaluation.json"""

    documents: int
    tokens: int
    tokens_per_second: float  # scored
    bits_per_token: Figures
    bits_per_byte: Figures | None = None
    bytes: int | None = None
    calibration: Calibration | None = None  # of the filter, where its particles are `auto`
    # upper minus lower bound on the NLL of text that the model writes, bits per token
    own_text_gap: Estimate | None = None
    iwae_by_samples: dict[int, Estimate] | None = None  # bits per token, by K
    gap_nats_per_token: Estimate | None = None  # bound minus exact
    elbo_gap_nats_per_token: Estimate | None = None
    fresh: Scores | None = None  # groups of the target task: each sequence with a z of its own
    pinned: Scores | None = None  # all of a group with one z
    answers_right: Estimate | None = None  # share of ends that follow from the rest
    latent: LatentFigures | None = None
    label: LabelFigures | None = None
    persistence: dict[int, NetInformation] | None = None  # z of text, by lag, summed over bits
    steering: Steering | None = None
    swap: Swap | None = None
    sequence_z: SequenceZ | None = None
    budgets: list[BudgetFigures] = field(default_factory=list)
    trained_tokens: int = 0
    parameters: int = 0
    collapsed: bool | None = None


@dataclass
class Generations:
    """Continuations of a prompt, single draws to look at: each in ``fresh`` has its own z, each
    list in ``pinned`` shares one. A model without noise has none pinned.
    """

    prompt: str
    fresh: list[str]
    pinned: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class ByOffset:
    """Mean KL by position relative to where the target starts."""

    offset: list[int]
    kl_bits: list[float]
    n: list[int]


@dataclass(frozen=True)
class LatentDetails:
    """Bits by position: what z so far tells about the start; how far z is from fair bits."""

    start_bits: list[float | None]
    next_bits: list[float | None]
    from_start: ByOffset | None = None  # where each token reads its own z


@dataclass
class CoinSequence:
    """P(next flip is a one) at each flip of a held-out sequence, exactly and by the model."""

    flips: str
    side: int
    exact: list[float]
    given_side: float
    model: list[float] | None = None  # a baseline's
    encoder_z: list[list[float]] | None = None  # a Free Transformer's, for several z
    prior_z: list[list[float]] | None = None


@dataclass
class Details:
    """details.json"""

    kl_per_bit: list[float]  # bits per token; empty for a baseline
    bound_bits: list[float]  # of each held-out document
    document_tokens: list[int]
    document_bytes: list[int] | None = None
    generations: list[Generations] = field(default_factory=list)
    groups: dict[str, list[list[str]]] | None = None  # a few generated ones, fresh and pinned
    latent: LatentDetails | None = None
    coin: list[CoinSequence] = field(default_factory=list)
    persistence: list[NetInformation] = field(default_factory=list)  # at lags 0, 1, 2, …
    bits: list[InformativeBit] = field(default_factory=list)  # with the largest KL
    manifest: Manifest | None = None  # of the measured checkpoint; the stage adds it
    settings: dict[str, Any] = field(default_factory=dict)  # of the evaluation, as in params.yaml

    def sizes(self, unit: str) -> Tensor:
        """Tokens or bytes of each held-out document: (n,)."""
        sizes = self.document_bytes if unit == "bits_per_byte" else self.document_tokens
        return torch.tensor(sizes, dtype=torch.float64)
