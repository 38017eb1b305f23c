"""The types of the files that `evaluate` writes to results/<experiment>/<run>/. Those of `suite`
are in suite_results.py. The functions of result_files.py can be imported from here.

A field that does not apply to a run is None or an empty list, and not in its file.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ftmodel.analysis.bit_information import NetInformation
from ftmodel.analysis.calibration import Calibration
from ftmodel.analysis.permutation import Chance
from ftmodel.synthetic.target_scores import Scores
from pipelines.artifacts.budget_results import BudgetResult
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.estimate import Estimate as Estimate
from pipelines.artifacts.latent_results import InformativeBit, SequenceZ, Steering, Swap
from pipelines.artifacts.result_files import (
    flat as flat,
    plain as plain,
    read as read,
    write as write,
)

UNITS = {"bits_per_byte": "bits per byte", "bits_per_token": "bits per token"}  # names of fields


# ------------------------------------------------------------------------------- evaluation.json


@dataclass(frozen=True)
class Figures:
    """Held-out figures in one unit: a baseline has only nll, a Free Transformer all others."""

    nll: Estimate | None = None
    ce: Estimate | None = None  # reconstruction: no language-model loss
    kl: Estimate | None = None
    elbo: Estimate | None = None
    iwae: Estimate | None = None
    prior: Estimate | None = None
    filtering: Estimate | None = None
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


# ---------------------------------------------------------------------------------- details.json


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
        per_byte = unit == "bits_per_byte"
        return torch.tensor(
            self.document_bytes if per_byte else self.document_tokens, dtype=torch.float64
        )
