"""Designs of the latent: the paper's, which is the default, and others that it is compared with.

This module has their names, and what follows from them without a tensor; the other modules of this
package compute them. Values are compared by ==, not ``is``: an exported model's code may be loaded
twice in one process.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, get_type_hints

from ftmodel.model.limits import check_limits, limited


class Encoder(StrEnum):
    """What gives the posterior q(z | x). Both read later tokens; neither runs for new tokens."""

    # one non-causal block that ζ queries, over the activations of the lower half (the paper)
    shared = "shared"
    # a non-causal Transformer of its own over the token embeddings, without ζ: the conditional VAE
    # of the paper's Fig. 1b. It reads the decoder's table of embeddings
    separate = "separate"


class Inject(StrEnum):
    """What the embedding r of z is added to."""

    kv = "kv"  # r is added to the input of the block's keys and values (the paper)
    residual = "residual"  # r is added to the residual stream, hence to the queries too
    # r is added to the input of the keys and values of every block from there on (Fang et al. 2021)
    kv_all = "kv_all"
    # r is added to the token embeddings, before all blocks (OPTIMUS, Li et al. 2020)
    embedding = "embedding"
    # r is added to nothing. In the block that reads z each position has a second key and value,
    # projected from the block's norm of r alone (OPTIMUS)
    memory = "memory"


class Per(StrEnum):
    """How many tokens share a latent code. A span of tokens uses its first token's code."""

    token = "token"  # each token has its own (the paper)
    # all tokens of a row, or of a document under document_mask, share H bits
    sequence = "sequence"
    # a fixed number of tokens, counted from the start of the row or document; see the setting every
    every = "every"


class Map(StrEnum):
    """How z becomes r."""

    table = "table"  # r is a row for each of the 2^H codes, H up to 24 (the paper)
    linear = "linear"  # r = Σ ± a vector for each bit, H up to 64


class Prior(StrEnum):
    """The prior: generation draws z from it, and the KL is taken to it."""

    uniform = "uniform"  # all 2^H codes are equally likely (the paper)
    # each bit has its own probability, read by an RMSNorm and a linear map from the causal
    # activations that the block reads beside z
    learned = "learned"
    # as learned, but read from the upper half's state at the token before as well, so that z may
    # depend on earlier z (Chung et al. 2015)
    recurrent = "recurrent"


class Gradient(StrEnum):
    """How the gradient of r reaches the logits of the bits. The last two are negative controls,
    which public re-implementations of the paper use.
    """

    all_codes = "all_codes"  # straight-through over all codes (the paper)
    # the sampled code alone: ρ·r times the gradient of log q(z), where ρ is the gradient at r. It
    # has the expectation of all_codes if ρ does not depend on z. A negative control
    score = "score"
    # the sampled code alone: ρ·r times the gradient of q(z). A negative control
    sampled_code = "sampled_code"


class FreeBits(StrEnum):
    """What the KL is averaged over before the hinge max(0, KL − κ)."""

    token = "token"  # over nothing (the paper)
    sequence = "sequence"  # over a row, or over a document under document_mask
    # over the rows of a batch, at each position (Kingma et al. 2016)
    position = "position"
    batch = "batch"  # over all tokens of a batch

    @property
    def needs_whole_batch(self) -> bool:
        return self in (FreeBits.position, FreeBits.batch)


DEFAULT_ENCODER_LAYERS = 2  # in a separate encoder
MAX_BITS = {Map.table: 24, Map.linear: 64}


@dataclass
class LatentDesign:
    """Which parts a latent is made of: how z is inferred, embedded, drawn, injected, limited and
    learned. Defaults are the paper's. A setting may be given as its name, a string.
    """

    encoder: Encoder = Encoder.shared  # what gives the posterior q(z | x)
    # number of blocks of a separate encoder; null: 2
    encoder_layers: int | None = limited(None, at_least=1, at_most=1 << 10)
    inject: Inject = Inject.kv  # where z enters the decoder
    per: Per = Per.token  # which tokens share a latent code
    # the number of tokens that share a latent code with per: every
    every: int | None = limited(None, "1 is per: token", at_least=2)
    map: Map = Map.table  # how z becomes r
    # what z is drawn from in generation, and what the KL is taken to
    prior: Prior = Prior.uniform
    # what the KL is averaged over before the hinge max(0, KL − κ)
    free_bits: FreeBits = FreeBits.token
    # how the gradient of r reaches the logits of the bits
    gradient: Gradient = Gradient.all_codes

    def __post_init__(self) -> None:
        """Raise ValueError, naming the setting, for a word that is none of its values."""
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if value not in [*kind]:
                raise ValueError(f"{name}: {value!r} is not one of {', '.join(kind)}")
            setattr(self, name, kind(value))
        if self.encoder == Encoder.separate and self.encoder_layers is None:
            self.encoder_layers = DEFAULT_ENCODER_LAYERS

    def changed(self, changes: Mapping[str, Any]) -> "LatentDesign":
        """Copy this design with ``changes``, without settings of what they replace."""
        old = asdict(self)
        if changes.get("encoder") == Encoder.shared:
            old["encoder_layers"] = None
        if changes.get("per", Per.every) != Per.every:
            old["every"] = None
        return LatentDesign(**old | dict(changes))

    def validate(self, bits: int = 0, context: int = 0) -> None:
        """Raise ValueError, naming the setting, if it contradicts another setting or, in a model
        with H = ``bits``, the ``context`` in tokens.
        """
        check_limits(self)
        if self.per == Per.every and self.every is None:
            raise ValueError("every: required when per is every")
        if self.every is not None and self.per != Per.every:
            raise ValueError(f"every: {self.every}, but there is one latent code per {self.per}")
        if self.per == Per.sequence and self.prior == Prior.recurrent:
            raise ValueError(
                "prior: recurrent needs several latent codes, but per: sequence has one"
            )
        layers = self.encoder_layers
        if layers is not None and self.encoder == Encoder.shared:
            raise ValueError(f"encoder_layers: {layers}, but a shared encoder is one block")
        if bits and (self.every or 0) >= context:
            raise ValueError(
                f"every: {self.every} is not below the context of {context}; "
                "for one latent code per sequence, set latent.per: sequence"
            )

    @property
    def max_bits(self) -> int:
        """The largest H."""
        return MAX_BITS[self.map]

    def vectors(self, bits: int) -> int:
        """The number of vectors whose sum is r."""
        return bits if self.map == Map.linear else 1

    @property
    def n_encoder_blocks(self) -> int:
        return self.encoder_layers or 1

    @property
    def copies_block(self) -> bool:
        """Whether the encoder may begin as a copy of a block of the decoder."""
        return self.encoder == Encoder.shared

    @property
    def first_block(self) -> int | None:
        """The block that reads z, counted from 0; None if the model's configuration decides it."""
        return 0 if self.inject == Inject.embedding else None

    @property
    def shared_codes(self) -> bool:
        """Whether several tokens share a latent code."""
        return self.per != Per.token

    @property
    def one_code(self) -> bool:
        """Whether all tokens of a sequence share one latent code."""
        return self.per == Per.sequence

    def tokens_per_code(self, context: int) -> int:
        """How many tokens share a latent code, in a sequence of ``context`` tokens."""
        return {Per.token: 1, Per.sequence: context, Per.every: self.every or 1}[self.per]

    @property
    def hinge_at_token(self) -> bool:
        """Whether each token has its own code and its own hinge, at least in the mean over rows.
        Then no position has more than κ free bits.
        """
        return not self.shared_codes and self.free_bits in (FreeBits.token, FreeBits.position)

    @property
    def uniform_prior(self) -> bool:
        return self.prior == Prior.uniform


KINDS: dict[str, type[StrEnum]] = {
    name: kind
    for name, kind in get_type_hints(LatentDesign).items()
    if isinstance(kind, type) and issubclass(kind, StrEnum)
}
