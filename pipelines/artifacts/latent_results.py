"""Types of evaluation's results on z in text."""

from dataclasses import dataclass, field

from ftmodel.analysis.bit_information import NetInformation
from pipelines.artifacts.estimate import Estimate


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
