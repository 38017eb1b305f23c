"""The types of what evaluation finds out about z in text."""

from dataclasses import dataclass, field

from ftmodel.analysis.bit_information import NetInformation
from pipelines.artifacts.estimate import Estimate


@dataclass(frozen=True)
class BitContext:
    """A position of held-out text, and how probable the encoder holds it that a bit is 1 there."""

    before: str
    token: str  # that the model reads at the position
    after: str  # it begins with the token that is predicted there
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
    """Mean distances, between 0 and 1, of continuations of the same prompt; standard errors over
    prompts. A baseline has ``same`` alone: its continuations differ by the draws of tokens.
    """

    same: Estimate  # with the same z
    different: Estimate | None = None  # with different z
    ratio: Estimate | None = None  # different ÷ same
    null_mean: float | None = None  # of the ratio, z permuted among the continuations of a prompt
    null_95: float | None = None  # 95 % quantile
    p_value: float | None = None  # (1 + permutations that reach the ratio) / (1 + permutations)


@dataclass(frozen=True)
class Swap:
    """Reconstruction cross-entropy, bits per token, by where z is from; no language-model loss."""

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
    """How often a bit of z is the same in two texts, between 0 and 1; over documents."""

    same: Estimate  # two texts of one document
    different: Estimate  # two texts of different documents
    null_95: float  # 95 % quantile of the difference, texts permuted among documents
    p_value: float  # (1 + permutations that reach the difference) / (1 + permutations)


@dataclass(frozen=True)
class PathStep:
    """Change of reconstruction cross-entropy, bits per token, between the z of two texts."""

    share: float  # of the bits in which these differ that are the other's
    start: Estimate  # of the text that the path begins at, less that with its own z
    end: Estimate  # of the other, less that with the first text's z
    random: Estimate  # of the first, with as many bits changed that are chosen at random


@dataclass(frozen=True)
class SequenceZ:
    """Of one z per sequence."""

    texts: int
    own: Estimate  # cross-entropy of texts with their own z, bits per token
    other: Estimate  # with that of the text that their path begins at
    path: list[PathStep]
    half: Estimate | None = None  # what half of the bits bring the other text, over what all do
    half_random: Estimate | None = None  # the same of as many bits changed at random
    half_minus_random: Estimate | None = None
    clusters: Clusters | None = None  # None if no document has two texts
